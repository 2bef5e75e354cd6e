"""What people see of a fleet, as values: neither printed nor drawn here."""
