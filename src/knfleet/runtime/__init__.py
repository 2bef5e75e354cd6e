"""What every controller needs: queue, manager, leader election, events, metrics, logs, health."""
