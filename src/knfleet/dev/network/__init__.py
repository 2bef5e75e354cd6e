"""Clusters that nothing can connect to: each in a network of its own, with chosen ways out."""
