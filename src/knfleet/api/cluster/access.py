"""Names of what gives the hub access to a spoke."""

ACCESS_SECRET = "knfleet-spoke-access"  # noqa: S105  a name
"""The Secret in a cluster's namespace on the hub in which its agent hands over a token."""
ACCESS_ACCOUNT = "knfleet-access"
"""The ServiceAccount in the agent's namespace on the spoke whose token that is."""
