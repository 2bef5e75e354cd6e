"""What is counted about spokes, read from them at each scrape.

How a spoke stands is exported by `operator.resource_metrics`, from its state; here is what only
ever grows.
"""

from knfleet.api.meta import Key
from knfleet.clusters.connection_state import cluster_name
from knfleet.clusters.pool import ClusterPool
from knfleet.runtime.metrics import Metrics


class ClusterMetrics:
    """The counters of all spokes in use; those of a spoke that is left go away."""

    def __init__(self, metrics: Metrics, spokes: ClusterPool) -> None:
        self.metrics = metrics
        self.spokes = spokes
        self.shown: set[Key] = set()
        self.counted: dict[tuple[Key, str], int] = {}
        self.failures = metrics.counter(
            "spoke_connect_failures", "Tries to reach a spoke that failed", "cluster", "reason"
        )
        self.runs = metrics.counter(
            "spoke_plugin_runs", "How often the plugin of a spoke was run", "cluster"
        )

    def read(self) -> None:
        """Count what happened since the last time."""
        for profile in self.shown - self.spokes.spokes.keys():
            self.forget(profile)
        for profile, spoke in self.spokes.spokes.items():
            self.shown.add(profile)
            cluster = cluster_name(profile)
            for reason, count in spoke.all_failed().items():
                self.failures.labels(cluster, reason).inc(self.grown(profile, reason, count))
            self.runs.labels(cluster).inc(self.grown(profile, "", spoke.plugin_runs()))

    def grown(self, profile: Key, what: str, total: int) -> int:
        """By how much something grew since it was read last; a spoke used anew begins at zero."""
        before = self.counted.get((profile, what), 0)
        self.counted[profile, what] = total
        return total - before if total >= before else total

    def forget(self, profile: Key) -> None:
        """Drop the metrics of a spoke that is not in use any more."""
        cluster = cluster_name(profile)
        for metric in (self.failures, self.runs):
            metric.remove_by_labels({"cluster": cluster})
        for counted in [counted for counted in self.counted if counted[0] == profile]:
            del self.counted[counted]
        self.shown.discard(profile)
        self.metrics.forget(cluster)


def watch_spokes(metrics: Metrics, spokes: ClusterPool) -> None:
    """Count what happens to all spokes, as it is at each scrape."""
    metrics.before_scrape.append(ClusterMetrics(metrics, spokes).read)
