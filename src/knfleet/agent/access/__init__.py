"""The hub's access to this cluster."""
