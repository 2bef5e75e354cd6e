"""Pages of the dashboard, and actions on them."""
