"""Clusters, operators, peers and fake servers that tests and benchmarks share."""
