"""Expressions that users write about objects: label selectors and CEL. Pure evaluation."""
