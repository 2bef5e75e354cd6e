"""Writes and deletes what was planned."""
