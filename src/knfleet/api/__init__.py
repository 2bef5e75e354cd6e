"""Typed resources, names and conditions: what the other rooms talk about."""
