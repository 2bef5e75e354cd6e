"""The fleet for all pages: one round for each burst of changes."""

from collections.abc import Callable

from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.kube.cache.informer import Informer
from knfleet.kube.client.verbs import Client
from knfleet.web.live.feed import LATEST_SECONDS, SOONEST_SECONDS, HubFeed
from knfleet.web.server.authorization import EVERYTHING, KINDS, VisibleObjects
from testbed.fakes.clients import client_for
from tests.support import dashboards


class Timers:
    """A clock whose alarms a test rings."""

    def __init__(self) -> None:
        self.alarms: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        """No time passes."""
        return 0.0

    def call_at(self, when: float, callback: Callable[[], None], /) -> "Timers":
        """Remember the alarm."""
        self.alarms.append((when, callback))
        return self

    def cancel(self) -> None:
        """Nobody cancels here."""

    def ring(self) -> float:
        """Ring the first alarm; when it was set for."""
        when, callback = self.alarms.pop(0)
        callback()
        return when


def fed(client: Client, feed: HubFeed) -> tuple[Informer, Informer]:
    """A feed with two installations in two namespaces, as if their lists had come."""
    servings, eventings = Informer(client, SERVINGS), Informer(client, EVENTINGS)
    for informer in (servings, eventings):
        informer.synced.set()
        feed.follow(informer)
    return servings, eventings


def stored(name: str, namespace: str) -> dict[str, object]:
    """A custom resource as a server stores it."""
    made = dashboards.installation(SERVINGS, name, namespace)
    made["metadata"] |= {"uid": name, "resourceVersion": "1"}
    return made


async def test_many_changes_are_one_round() -> None:
    """However many come at once, pages look once."""
    timers = Timers()
    feed = HubFeed(clock=timers)
    async with client_for("http://127.0.0.1:1") as client:
        servings, _ = fed(client, feed)
        for number in range(50):
            servings.put(stored(f"s{number}", "a"))

    assert len(timers.alarms) == 1
    assert timers.ring() == SOONEST_SECONDS
    assert feed.revision == 1
    assert len(feed.fleet().installs) == 50


async def test_a_fleet_is_put_together_once_for_each_revision_and_sight() -> None:
    """Fifty pages cost one."""
    timers = Timers()
    feed = HubFeed(clock=timers)
    async with client_for("http://127.0.0.1:1") as client:
        servings, _ = fed(client, feed)
        servings.put(stored("one", "a"))
        timers.ring()
        for _ in range(50):
            feed.fleet()
        assert feed.computed == 1

        servings.put(stored("two", "a"))
        timers.ring()

        assert len(feed.fleet(EVERYTHING).installs) == 2
    assert feed.computed == 2


async def test_the_next_round_waits_the_longer_the_more_the_last_one_cost() -> None:
    """So that showing changes takes a bounded part of a core, and none waits too long."""
    timers = Timers()
    feed = HubFeed(clock=timers)
    feed.spent = 0.03
    feed.burst()
    assert timers.ring() == 0.36

    feed.spent = 10
    feed.burst()

    assert timers.ring() == LATEST_SECONDS


async def test_everybody_sees_what_they_may_and_is_told_what_is_missing() -> None:
    """Other namespaces are not shown, and a sentence says so."""
    timers = Timers()
    feed = HubFeed(clock=timers)
    visible = VisibleObjects(frozenset({EVENTINGS}), frozenset({(SERVINGS, "mine")}))
    async with client_for("http://127.0.0.1:1") as client:
        servings, _ = fed(client, feed)
        servings.put(stored("one", "mine"))
        servings.put(stored("two", "theirs"))

        seen = feed.fleet(visible)

    assert [each.namespace for each in seen.installs] == ["mine"]
    told = " ".join(seen.warnings)
    assert "knativeservings.operator.knative.dev in all namespaces; shown are those in mine" in told
    assert "managedclusters.cluster.open-cluster-management.io, so none are shown" in told
    assert "You may not list knativeeventings" not in told


async def test_what_is_not_known_yet_is_told_until_it_is() -> None:
    """A list that comes without objects changes nothing else, but what was told of it is over."""
    feed = HubFeed(clock=Timers())
    assert len(feed.fleet().warnings) == len(KINDS)
    assert all("The hub is starting" in each for each in feed.fleet().warnings)
    async with client_for("http://127.0.0.1:1") as client:
        informers = [Informer(client, kind) for kind in KINDS]
        for informer in informers:
            feed.follow(informer)
        assert all("has not come yet" in each for each in feed.fleet().warnings)

        for informer in informers:
            informer.synced.set()

        assert feed.fleet().warnings == ()
