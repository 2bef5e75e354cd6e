"""Kinds of `work.open-cluster-management.io`: objects that the hub sends to a cluster."""
