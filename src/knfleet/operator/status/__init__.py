"""The status and the Events of a custom resource: what they contain, and who writes them."""
