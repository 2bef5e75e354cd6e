"""Desired objects to a cluster: plan, waves, change set; prune, readiness, drift."""
