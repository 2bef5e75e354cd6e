"""Images: those of installations and of releases."""
