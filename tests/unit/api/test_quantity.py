"""Resource quantities."""

from decimal import Decimal

import pytest

from knfleet.api.quantity import quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", "1"),
        ("-0.5", "-0.5"),
        ("500m", "0.5"),
        ("1.5Gi", "1610612736"),
        (".5", "0.5"),
        ("5.", "5"),
        ("2e3", "2000"),
        ("2E3", "2000"),
        ("2E", "2000000000000000000"),
        ("100n", "0.0000001"),
        ("+3k", "3000"),
    ],
)
def test_a_quantity_means_a_number(text: str, number: str):
    assert quantity(text) == Decimal(number)


@pytest.mark.parametrize(
    "text", ["", "1Xi", "Gi", "1 Gi", "NaN", "Infinity", "1e999", "--1", "1e", "1ki", "9" * 65]
)
def test_what_is_no_quantity_is_none(text: str):
    assert quantity(text) is None
