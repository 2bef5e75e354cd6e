"""The gRPC server of a hub, as `join` and `doctor` see it."""
