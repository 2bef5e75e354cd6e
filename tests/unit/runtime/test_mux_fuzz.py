"""Whatever a peer sends, a multiplexed connection neither raises, hangs nor grows."""

import gc
import tracemalloc

import pytest

from tests.unit.runtime.mux_fuzz import Fuzz


@pytest.mark.parametrize("seed", range(4))
def test_random_input_is_survived(seed: int):
    fuzz = Fuzz(seed)

    fuzz.run(2_500)

    assert fuzz.connections > 10
    assert fuzz.delivered > 100_000


@pytest.mark.soak
def test_a_million_random_inputs_are_survived_without_growth():
    fuzz = Fuzz(2026)
    tracemalloc.start()
    try:
        fuzz.run(50_000)
        before = held(fuzz)

        fuzz.run(950_000)

        assert held(fuzz) < before + 64 * 1024
    finally:
        tracemalloc.stop()
    assert fuzz.connections > 1_000


def held(fuzz: Fuzz) -> int:
    """Bytes that are still in use after the connection, with its buffers, is over."""
    fuzz.end()
    fuzz.begin()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
