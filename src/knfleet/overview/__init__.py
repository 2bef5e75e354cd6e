"""What people are shown of a fleet, as values: the command line and the dashboard print them."""
