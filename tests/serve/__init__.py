"""Knative that serves: real programs of a release, in pods that run."""
