"""Real control planes on this machine, for demonstrations, tests and the curious."""
