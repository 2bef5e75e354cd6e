"""Collections in memory that watches keep current; `informer.Informer` is the interface."""
