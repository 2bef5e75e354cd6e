"""Everything that is installed on a cluster: manifests of operator, hub and agent; chart."""
