"""The record of all writes: log lines, and a file whose lines are chained by hashes."""
