"""CloudEvents over gRPC as agents and hubs of Open Cluster Management exchange them: the format."""
