"""Decisions as objects: their layout, the order of writes, and the writes themselves."""
