"""What can go wrong on the ground."""


class DevError(Exception):
    """A control plane cannot be had; the message says what to do next."""
