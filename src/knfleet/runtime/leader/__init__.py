"""Leader election by Lease: rules, and the process that follows them."""
