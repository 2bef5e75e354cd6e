"""What users see of a fleet, as values for the command line and the dashboard."""
