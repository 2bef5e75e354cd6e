"""The pure parts of the dev node."""
