"""What the agent reports: heartbeat, cluster status, Klusterlet, namespaces."""
