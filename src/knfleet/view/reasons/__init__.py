"""Every reason in conditions and Events, explained; `catalog` is the interface."""
