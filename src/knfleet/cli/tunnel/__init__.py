"""Commands for clusters that are reached through the hub."""
