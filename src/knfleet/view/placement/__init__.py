"""What users see of placements: rows, and explanations of decisions."""
