"""The dev node on a real control plane."""
