"""What `knfleet demo` shows; `demo` is the interface."""
