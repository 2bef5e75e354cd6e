"""The only code that speaks to API servers."""
