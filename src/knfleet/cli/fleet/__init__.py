"""Commands of a fleet: init, join, accept, detach and others."""
