"""Containers of pods that run as processes of this machine."""
