"""ManifestWorkReplicaSets: a work for each cluster that Placements select, rolled out in order."""
