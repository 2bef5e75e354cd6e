"""Controllers of the hub: registration, cluster sets and cluster profiles."""
