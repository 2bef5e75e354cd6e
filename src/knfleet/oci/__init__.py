"""Images: their references and manifests, registries that serve them, layouts that keep them."""
