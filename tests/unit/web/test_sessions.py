"""Who is logged in, and until when."""

from knfleet.web.server import sessions as module
from knfleet.web.server.sessions import WebSessions
from testbed.fakes.clients import client_for


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_session_ends_when_nothing_was_asked_for_a_while() -> None:
    """Every question counts, and the last one most."""
    clock = Clock()
    sessions = WebSessions(100, clock=clock)
    async with client_for("http://127.0.0.1:1") as client:
        session = await sessions.open("ada", client, is_owner=True)
        clock.now = 99
        assert sessions.find(session.id) is session
        clock.now = 198
        assert sessions.find(session.id) is session

        clock.now = 298

        assert sessions.find(session.id) is None


async def test_ids_are_random_and_strangers_find_nothing() -> None:
    """Nobody guesses an id, and none is empty."""
    sessions = WebSessions(100)
    async with client_for("http://127.0.0.1:1") as client:
        made = [await sessions.open("ada", client, is_owner=True) for _ in range(3)]

    assert len({each.id for each in made} | {""}) - 1 == 3
    assert all(len(each.id) >= 43 for each in made)
    assert sessions.find("") is None
    assert made[0].csrf not in repr(made[0])
    assert made[0].allows(made[0].csrf)
    assert not made[0].allows(made[1].csrf)


async def test_the_oldest_makes_room() -> None:
    """Memory is bounded, whoever logs in how often."""
    clock = Clock()
    sessions = WebSessions(10_000, clock=clock)
    async with client_for("http://127.0.0.1:1") as client:
        for number in range(module.SESSIONS + 1):
            clock.now = number
            await sessions.open(str(number), client, is_owner=True)

    assert len(sessions.sessions) == module.SESSIONS
    assert "0" not in [each.user for each in sessions.sessions.values()]
