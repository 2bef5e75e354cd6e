"""Resource quantities, as Kubernetes writes them: `500m`, `1.5Gi`, `2e3`."""

import re
from decimal import Decimal

LONGEST = 64
FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,2})|(n|u|m|k|Ki|[MGTPE]i?))?")
FACTORS = {
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


def quantity(text: str) -> Decimal | None:
    """The number that a resource quantity means; None when the text is not a quantity."""
    match = FORM.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        return None
    digits, exponent, unit = match.groups()
    return Decimal(f"{digits}{exponent or ''}") * FACTORS.get(unit, Decimal(1))
