"""The gRPC server beside the hub: agents that use it never reach the hub's API server."""
