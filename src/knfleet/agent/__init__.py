"""The process on a spoke: it asks to join, sends heartbeats, and hands over access."""
