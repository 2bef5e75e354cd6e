"""Hundreds of fake spokes, and real hubs."""
