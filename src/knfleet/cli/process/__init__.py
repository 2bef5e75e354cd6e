"""Commands that run as processes in a cluster, and print what is installed there."""
