"""What changes on open pages, sent as server-sent events."""
