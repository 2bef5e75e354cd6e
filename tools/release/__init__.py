"""The files of a release, made from a tag."""
