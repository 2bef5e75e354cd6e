"""Measurements beside Open Cluster Management."""
