"""Conversion between the versions of add-on objects: the webhook, and whether it works."""
