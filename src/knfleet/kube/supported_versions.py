"""Versions of Kubernetes, as servers tell them."""

import re

MINIMUM = "v1.34.0"
"""The oldest that the Knative releases of today support."""

VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def numbers(version: str) -> tuple[int, int, int] | None:
    """Major, minor and patch; a pre-release counts as its release. None when it is no version."""
    found = VERSION.match(version.strip())
    return None if found is None else (int(found[1]), int(found[2]), int(found[3] or 0))
