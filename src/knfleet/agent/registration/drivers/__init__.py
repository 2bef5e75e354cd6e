"""Ways in which an agent gets its credential for the hub."""
