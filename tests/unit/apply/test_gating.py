"""How long a watch of CRDs is believed."""

import asyncio

import pytest

from knfleet.api.meta import Key, Object
from knfleet.apply.act import gates
from knfleet.apply.act.gates import Definitions
from knfleet.apply.refs import CRD, Ref

SOON = 0.05
LONG = 30.0


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch is thought broken soon."""
    monkeypatch.setattr(gates, "SOON_SECONDS", SOON)


def ref(name: str) -> Ref:
    """A CRD."""
    return Ref(CRD.group, CRD.kind, "", name)


def crd(name: str, established: str) -> Object:
    """A CRD as the watch keeps it."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "status": {"conditions": [{"type": "Established", "status": established}]},
    }


def found(**established: str) -> dict[Key, Object]:
    """Some CRDs."""
    return {Key("", name): crd(name, status) for name, status in established.items()}


async def test_a_watch_that_goes_on_telling_is_believed_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CRDs are taken up one after the other, each sooner than silence, all of them later."""
    monkeypatch.setattr(gates, "SOON_SECONDS", 2.0)
    seen, loop = Definitions(LONG), asyncio.get_running_loop()
    names = [f"crd{number}" for number in range(6)]
    served: dict[str, str] = {}

    def next_one() -> None:
        served[names[len(served)]] = "True"
        seen.note(found(**served))
        if len(served) < len(names):
            loop.call_later(0.5, next_one)

    next_one()

    assert await seen.are_ready({ref(name) for name in names})


async def test_a_silent_watch_is_not_waited_for() -> None:
    """Somebody else must look."""
    seen = Definitions(LONG)
    seen.note(found(one="True", other="False"))

    assert not await seen.has_told({ref("one"), ref("other")})


async def test_a_watch_that_has_ended_tells_nothing() -> None:
    """Unless everything was told before."""
    seen = Definitions(LONG)
    seen.note(found(one="True"))
    seen.end(None)

    assert await seen.has_told({ref("one")})
    assert not await seen.has_told({ref("one"), ref("other")})


async def test_when_time_is_up_what_was_told_counts() -> None:
    """The rest is named."""
    seen = Definitions(SOON / 2)
    seen.note(found(one="True", other="False"))
    both = {ref("one"), ref("other")}

    assert await seen.has_told(both)
    assert [each.ref.name for each in seen.not_ready(both)] == ["other"]
    assert not await seen.are_ready(both)


async def test_time_is_given_once_however_many_wait() -> None:
    """Those that objects need are waited for first, and all of them afterwards."""
    seen = Definitions(SOON / 2)
    seen.note(found(one="False", other="False"))
    await seen.has_told({ref("one")})
    loop = asyncio.get_running_loop()
    turns: list[None] = []
    loop.call_soon(turns.append, None)

    assert await seen.has_told({ref("one"), ref("other")})
    assert not turns
