"""Readers of foreign input refuse it in their own words; `make fuzz` tries a million of each."""

import random

import pytest

from tests.fuzz.corpus import FOLDER, kept
from tests.fuzz.seeds import SEEDS, seeds
from tests.fuzz.targets import TARGETS

INPUTS = 300


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore")
def test_spoiled_input_is_refused_or_read_but_leads_to_nothing_else(target: str) -> None:
    check, chance = TARGETS[target], random.Random(target)
    for valid in seeds(target):
        check(valid)
    for _ in range(INPUTS):
        check(spoiled(chance.choice(seeds(target)), chance))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore")
def test_what_fuzzing_has_found_stays_fixed(target: str) -> None:
    for found in kept(target):
        TARGETS[target](found)


def test_every_reader_has_valid_input_to_begin_with() -> None:
    assert list(SEEDS) == list(TARGETS)
    assert {path.name for path in FOLDER.iterdir()} <= set(TARGETS)


def spoiled(valid: bytes, chance: random.Random) -> bytes:
    """Bytes that are almost valid."""
    data = bytearray(valid)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) + 1)
        length = chance.randrange(1, 20)
        match chance.randrange(5):
            case 0:
                del data[at : at + length]
            case 1:
                data[at:at] = data[at : at + length] * 2
            case 2:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 3:
                data[at:at] = chance.randbytes(length)
            case _:
                data[at:at] = chance.choice([b"\0", b"\xed\xa0\x80", b"'", b"{", b"%", b"\r\n"])
    return bytes(data)
