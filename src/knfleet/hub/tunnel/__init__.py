"""Clusters that the hub reaches through connections which their agents opened.

`agent_listener.py` accepts agents, `tunnel_registry.py` has the tunnels that are open, `front`
serves their consumers: an HTTP proxy that ClusterProfiles name in `proxy-url`.
"""
