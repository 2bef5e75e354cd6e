"""Tests of images, registries and layouts."""
