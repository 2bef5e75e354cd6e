"""Live state of applied objects: watches, readiness, drift and its repair."""
