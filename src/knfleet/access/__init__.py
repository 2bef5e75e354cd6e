"""From a ClusterProfile to a live connection: providers, resolution, spokes."""
