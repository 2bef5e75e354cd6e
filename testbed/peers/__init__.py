"""The Knative Operator, built from its Go module, and samples for it."""
