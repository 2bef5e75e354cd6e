"""`fleet.knfleet.dev`: Knative on many clusters as one object."""
