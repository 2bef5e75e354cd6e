"""Steps for Serving's ingress implementations."""
