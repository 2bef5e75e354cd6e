"""Removing an installation, its finalizer, and what lost spokes still have."""
