"""ManagedClusters: acceptance, rights, heartbeats, deletion."""
