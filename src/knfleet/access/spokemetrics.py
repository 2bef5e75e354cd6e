"""What is told about spokes to Prometheus, read from their states whenever somebody asks."""

from datetime import UTC, datetime

from knfleet.access.spokes import Spokes
from knfleet.access.states import Phase, cluster_name
from knfleet.api.meta import Key
from knfleet.runtime.metrics import Metrics

LABELS = ("namespace", "name")


class SpokeMetrics:
    """The metrics of all spokes in use; those of a spoke that is left go away."""

    def __init__(self, metrics: Metrics, spokes: Spokes) -> None:
        self.metrics = metrics
        self.spokes = spokes
        self.shown: set[Key] = set()
        self.counted: dict[tuple[Key, str], float] = {}
        gauge, counter = metrics.gauge, metrics.counter
        self.phase = gauge("spoke_phase", "1 for the phase of each spoke", *LABELS, "phase")
        self.since = gauge("spoke_phase_seconds", "How long a spoke is in its phase", *LABELS)
        self.contact = gauge(
            "spoke_last_contact_seconds", "How long ago a spoke answered last", *LABELS
        )
        self.failures = counter(
            "spoke_connect_failures", "Tries to reach a spoke that failed", *LABELS, "reason"
        )
        self.plugin_seconds = counter(
            "spoke_plugin_seconds", "How long the plugin of a spoke ran", *LABELS
        )
        self.plugin_runs = counter(
            "spoke_plugin_runs", "How often the plugin of a spoke was run", *LABELS
        )

    def read(self) -> None:
        """Make the metrics say how the spokes stand now."""
        now = datetime.now(UTC)
        gone = self.shown - self.spokes.spokes.keys()
        for profile in gone:
            self.forget(profile)
        for profile, spoke in self.spokes.spokes.items():
            self.shown.add(profile)
            state, labels = spoke.state(), (profile.namespace, profile.name)
            for phase in Phase:
                self.phase.labels(*labels, phase).set(int(phase is state.phase))
            self.since.labels(*labels).set((now - state.since).total_seconds())
            if state.last_contact is not None:
                self.contact.labels(*labels).set((now - state.last_contact).total_seconds())
            for reason, count in spoke.all_failed().items():
                grown = self.grown(profile, reason, count)
                self.failures.labels(*labels, reason).inc(grown)
            seconds = self.grown(profile, "plugin seconds", spoke.plugin_seconds())
            self.plugin_seconds.labels(*labels).inc(seconds)
            runs = self.grown(profile, "plugin runs", spoke.plugin_runs())
            self.plugin_runs.labels(*labels).inc(runs)

    def grown(self, profile: Key, what: str, total: float) -> float:
        """By how much something grew since it was read last."""
        before = self.counted.get((profile, what), 0)
        self.counted[profile, what] = total
        return max(0, total - before)

    def forget(self, profile: Key) -> None:
        """Drop what was told about a spoke that nobody uses any more."""
        labels = {"namespace": profile.namespace, "name": profile.name}
        for metric in (
            self.phase,
            self.since,
            self.contact,
            self.failures,
            self.plugin_seconds,
            self.plugin_runs,
        ):
            metric.remove_by_labels(labels)
        for counted in [counted for counted in self.counted if counted[0] == profile]:
            del self.counted[counted]
        self.shown.discard(profile)
        self.metrics.forget(cluster_name(profile))


def watch_spokes(metrics: Metrics, spokes: Spokes) -> None:
    """Tell the state of all spokes, as it is whenever somebody asks."""
    metrics.before_scrape.append(SpokeMetrics(metrics, spokes).read)
