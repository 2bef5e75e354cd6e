"""What an add-on consists of on one cluster: settings, manifests, works, and their state. Pure."""
