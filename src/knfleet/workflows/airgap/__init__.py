"""What clusters without the Internet need: saved, put into a private registry, and checked."""
