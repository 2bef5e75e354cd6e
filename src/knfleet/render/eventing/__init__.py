"""Steps for Knative Eventing."""
