"""Random faults on a hub and the agents of its clusters, while works come, change and go."""
