"""Admission policies that the API server enforces for the hub."""
