"""Fake servers, spokes and networks, for scale and for faults that real ones do not produce."""
