"""CustomResourceDefinitions, generated from the types of this package."""
