"""What the cluster has of a work's objects, by watch: records, feedback, conditions."""
