"""Chaos for everything that a hub spreads over clusters, by every way in which clusters join."""
