"""The hub over gRPC: the same objects as from its API server, without reaching that."""
