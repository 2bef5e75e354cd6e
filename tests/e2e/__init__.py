"""The flow of the multi-cluster guide, on clusters that the reader names or on dev clusters."""
