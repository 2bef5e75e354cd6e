"""Which rights an account on a spoke needs, so that Knative can be installed there."""
