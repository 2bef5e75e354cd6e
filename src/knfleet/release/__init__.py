"""Which Knative release a custom resource asks for, and the objects it consists of."""
