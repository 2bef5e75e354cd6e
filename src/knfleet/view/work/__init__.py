"""ManifestWorks as users see them: rows with the state of each manifest, and plans."""
