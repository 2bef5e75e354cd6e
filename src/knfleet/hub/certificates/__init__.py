"""Certificates of the hub's own ports: issued by CAs of its own, kept in Secrets, rotated."""
