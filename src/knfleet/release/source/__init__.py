"""Where release files come from: folders, archives, downloads, the Go module."""
