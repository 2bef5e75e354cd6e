"""Commands about Knative on the fleet: status, plan, apply and others."""
