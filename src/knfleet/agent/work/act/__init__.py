"""Writes to the cluster: objects, their removal, AppliedManifestWorks."""
