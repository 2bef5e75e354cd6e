"""What `init`, `join`, `accept`, `detach`, `clean` and `doctor` do."""
