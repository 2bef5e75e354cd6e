"""The format of events."""
