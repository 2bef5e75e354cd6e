"""Calls of agents: who makes them, what they may, and what they write."""
