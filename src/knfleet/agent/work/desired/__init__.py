"""What a work wants of the cluster: manifests, options, and the objects to write. Pure."""
