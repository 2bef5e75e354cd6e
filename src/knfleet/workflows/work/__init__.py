"""Works from files to the clusters of a hub."""
