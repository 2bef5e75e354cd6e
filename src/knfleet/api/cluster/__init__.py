"""Kinds of `cluster.open-cluster-management.io`: ManagedCluster, its sets and claims."""
