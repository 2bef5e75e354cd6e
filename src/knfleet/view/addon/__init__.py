"""Add-ons as users see them: clusters by add-ons, and how far rollouts are."""
