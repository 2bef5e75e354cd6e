"""What to do for a fleet now: pure functions of clusters, children and time."""
