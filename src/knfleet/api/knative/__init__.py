"""KnativeServing and KnativeEventing: resources, overrides, ingress, conditions."""
