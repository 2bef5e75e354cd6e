"""The two controllers that install Knative: from a custom resource to a cluster that matches it."""
