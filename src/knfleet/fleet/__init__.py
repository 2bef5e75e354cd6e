"""The hub's controllers: clusters join, are heard of, are grouped, published, and leave."""
