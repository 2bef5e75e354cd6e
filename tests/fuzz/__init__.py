"""Input from elsewhere, as hostile as it can be: each reader refuses it in its own words."""
