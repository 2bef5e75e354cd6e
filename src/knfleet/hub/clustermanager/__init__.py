"""The ClusterManager: the configuration of the hub, and its status."""
