"""HTTP servers of a process: listener with limits, health and metrics."""
