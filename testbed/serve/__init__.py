"""A cluster on which every pod runs: Knative's own programs, built from their Go modules."""
