"""Gates of fleets: what must be so before a wave is complete."""
