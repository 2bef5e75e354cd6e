"""The agent's end of the tunnel: `tunnel_client.py` connects, `tunnel_targets.py` limits it."""
