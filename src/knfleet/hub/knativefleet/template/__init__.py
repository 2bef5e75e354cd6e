"""What a revision of a fleet means for each cluster: pure functions of templates and profiles."""
