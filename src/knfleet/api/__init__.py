"""Typed resources, names and conditions, shared by all other packages."""
