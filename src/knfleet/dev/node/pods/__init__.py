"""Pods of the dev node: simulated, or run as processes."""
