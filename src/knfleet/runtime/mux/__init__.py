"""Many streams over one connection: `session.py` has the interface, `frames.py` the bytes."""
