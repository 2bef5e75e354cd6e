"""Tests that kill, starve and fight the operator for minutes: `make faults` runs them."""

import os

import pytest

only_with_faults = pytest.mark.skipif(
    "KNFLEET_FAULTS" not in os.environ, reason="takes minutes; `make faults` runs it"
)
