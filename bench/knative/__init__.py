"""Knative on one cluster or several, beside the Knative Operator and a bare client."""
