"""Measures knfleet beside the Knative Operator and a bare client."""
