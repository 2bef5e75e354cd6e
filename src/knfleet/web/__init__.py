"""The dashboard: the fleet in a browser, live, and only what the viewer may see."""
