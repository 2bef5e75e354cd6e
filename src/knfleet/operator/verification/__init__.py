"""Verifications: a small Knative Service or a Broker on the target that must work."""
