"""Many spokes in one process, which cost little."""
