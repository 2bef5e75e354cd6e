"""Installations on a real API server."""
