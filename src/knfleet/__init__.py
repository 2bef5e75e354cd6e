"""One hub runs Knative, and the fleet under it, on any number of Kubernetes clusters."""

__version__ = "0.1.0"
