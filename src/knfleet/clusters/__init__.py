"""From a ClusterProfile to a live connection: `pool.ClusterPool` is the interface."""
