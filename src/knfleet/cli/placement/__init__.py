"""Commands about placements."""
