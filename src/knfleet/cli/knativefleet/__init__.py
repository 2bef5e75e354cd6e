"""`knfleet fleet`: rollouts of KnativeFleets."""
