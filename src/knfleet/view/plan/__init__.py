"""What would change on clusters, before it does: `planner.Planner` is the interface."""
