"""Several processes that share work by Leases: rules, and membership."""
