"""The port of consumers: `tunnel_front.py` serves it, `front_authorizer.py` decides who may."""
