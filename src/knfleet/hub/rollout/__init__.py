"""In which order clusters get a change: one pure engine for everything that is rolled out."""
