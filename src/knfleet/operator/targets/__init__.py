"""Which cluster a custom resource installs on: the hub, or a spoke."""
