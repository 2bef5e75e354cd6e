"""How every custom resource and every spoke stands, as metrics, made at each scrape.

Beside counts by kind there is a line for each condition of each custom resource, so that an alert
can name it; lines of what is gone are gone.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from knfleet.api.meta import HUB, Key, Object
from knfleet.clusters.connection_state import ClusterState
from knfleet.operator.kinds import profile_of
from knfleet.operator.status.status_builder import status_of
from knfleet.runtime.metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

CONDITION = ("kind", "namespace", "name", "target", "type", "status", "reason")


class ResourceMetrics:
    """Collects when metrics are read; what is collected is looked up on the event loop before."""

    def __init__(
        self,
        resources: Callable[[], Iterable[Object]],
        states: Callable[[], Sequence[ClusterState]] = lambda: (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.resources = resources
        self.states = states
        self.now = now
        self.known: tuple[Sequence[Object], Sequence[ClusterState]] = ((), ())

    def join(self, metrics: Metrics) -> None:
        """Be a part of what a process tells."""
        metrics.before_scrape.append(self.snapshot)
        metrics.registry.register(self)

    def snapshot(self) -> None:
        """Take note of what there is; the rest is made in another thread."""
        self.known = list(self.resources()), list(self.states())

    def collect(self) -> Iterable["GaugeMetricFamily"]:
        """All lines."""
        resources, states = self.known
        yield from self.conditions(resources)
        yield from self.spokes(states)

    def conditions(self, resources: Sequence[Object]) -> Iterable["GaugeMetricFamily"]:
        """A line for each condition, and one for its age."""
        stands = family("condition", "1 for each condition of each custom resource", CONDITION)
        ages = family("condition_age_seconds", "Time since a condition changed", CONDITION[:5])
        for manifest in resources:
            key = Key.of(manifest)
            target = str(profile_of(manifest) or HUB)
            for each in status_of(manifest).conditions:
                names = [manifest["kind"], key.namespace, key.name, target, each.type]
                stands.add_metric([*names, each.status, each.reason], 1)
                if (age := self.age(each.last_transition_time)) is not None:
                    ages.add_metric(names, age)
        return stands, ages

    def spokes(self, states: Sequence[ClusterState]) -> Iterable["GaugeMetricFamily"]:
        """How each spoke stands, since when, and when it last answered."""
        stands = family("spoke_state", "1 for the state of each spoke", ("cluster", *STATE))
        ages = family("spoke_state_age_seconds", "Time since a spoke's state changed", CLUSTER)
        contacts = family("spoke_last_contact_seconds", "Time since a spoke last answered", CLUSTER)
        failures = family("spoke_failures", "Failed tries since a spoke last answered", CLUSTER)
        plugin = family("spoke_plugin_seconds", "Time in a spoke's credential plugin", CLUSTER)
        now = self.now()
        for state in states:
            cluster = [str(state.profile)]
            stands.add_metric([*cluster, state.phase, state.reason, state.version], 1)
            ages.add_metric(cluster, (now - state.since).total_seconds())
            failures.add_metric(cluster, state.failures)
            plugin.add_metric(cluster, state.plugin_seconds)
            if state.last_contact is not None:
                contacts.add_metric(cluster, (now - state.last_contact).total_seconds())
        return stands, ages, contacts, failures, plugin

    def age(self, moment: str) -> float | None:
        """Seconds since a moment; None when it cannot be read."""
        try:
            return max(0.0, (self.now() - datetime.fromisoformat(moment)).total_seconds())
        except (ValueError, TypeError):
            return None


STATE = ("phase", "reason", "version")
CLUSTER = ("cluster",)


def family(name: str, text: str, labels: Sequence[str]) -> "GaugeMetricFamily":
    """One metric without lines."""
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"knfleet_{name}", text, labels=labels)
