"""Decides what to create, change and delete, and in which order. Pure."""
