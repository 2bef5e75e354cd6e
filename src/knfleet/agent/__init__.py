"""The process on a spoke: it asks to join, stays heard of, and hands over access."""
