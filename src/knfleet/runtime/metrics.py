"""What the process counts, in a registry of its own.

Label values are clusters, controllers and small fixed words, never objects, except where a client
collects them anew each time (`knative.gauges`). Label sets are bound once and kept; those of a
cluster go when it leaves. prometheus_client is loaded when the first
`Metrics` is made.
"""

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from knfleet.api.meta import ClusterName, Resource
from knfleet.kube.errors import KubeError
from knfleet.runtime.queue import WorkQueue

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

QUEUE_BUCKETS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0)
WORK_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0)


class Metrics:
    """All metrics of one process; it is the observer of clients, leader and events."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        self.before_scrape: list[Callable[[], None]] = []
        self.requests: dict[tuple[str, str, str], Counter] = {}
        self.make_work_metrics()
        self.make_client_metrics()
        self.is_leader = self.gauge("leader", "1 while this process leads")
        self.members = self.gauge("members", "Processes that share the spokes; 0 when one has all")
        self.webhooks = self.counter(
            "webhook_requests", "Requests to webhooks by path and status code", "path", "code"
        )
        self.events = self.counter("events", "Events by what became of them", "cluster", "outcome")

    def make_work_metrics(self) -> None:
        """What is counted for controllers and their queues; the names are those of client-go."""
        name, counter, gauge = "name", self.counter, self.gauge
        self.queue_depth = gauge("workqueue_depth", "Requests that wait for their turn", name)
        self.queue_longest = gauge(
            "workqueue_longest_running_seconds", "Age of the oldest running work", name
        )
        self.queue_unfinished = gauge(
            "workqueue_unfinished_work_seconds", "Age of all running work together", name
        )
        self.queue_adds = counter("workqueue_adds", "Requests that were added", name)
        self.queue_retries = counter("workqueue_retries", "Requests that failed", name)
        self.queue_waits = self.histogram(
            "workqueue_queue_duration", "From ready to taken", QUEUE_BUCKETS, name
        )
        self.queue_works = self.histogram(
            "workqueue_work_duration", "From taken to done", WORK_BUCKETS, name
        )
        self.reconciles = counter("reconcile", "Reconciles by result", "controller", "result")
        self.repairs = counter(
            "repairs",
            "Changes by others to managed objects, by what became of them",
            "kind",
            "result",
        )
        self.reconcile_durations = self.histogram(
            "reconcile_duration", "Length of reconciles", WORK_BUCKETS, "controller"
        )

    def make_client_metrics(self) -> None:
        """What is counted for clients."""
        self.client_requests = self.counter(
            "client_requests", "Requests to API servers", "cluster", "verb", "code"
        )
        # By verb alone: with a cluster label this would be tens of thousands of lines.
        self.client_durations = self.histogram(
            "client_request_duration", "Length of requests", REQUEST_BUCKETS, "verb"
        )
        self.duration_of = lru_cache(maxsize=64)(self.client_durations.labels)
        self.watch_restarts = self.counter("watch_restarts", "Watches opened again", "cluster")
        self.credential_refreshes = self.counter(
            "credential_refreshes", "Credentials fetched", "cluster"
        )

    def counter(self, name: str, text: str, *labels: str) -> "Counter":
        """A number that only grows."""
        from prometheus_client import Counter

        return Counter(f"knfleet_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> "Gauge":
        """A number that goes up and down."""
        from prometheus_client import Gauge

        return Gauge(f"knfleet_{name}", text, labels, registry=self.registry)

    def histogram(
        self, name: str, text: str, buckets: tuple[float, ...], label: str
    ) -> "Histogram":
        """Many lengths of time, by size."""
        from prometheus_client import Histogram

        return Histogram(
            f"knfleet_{name}_seconds", text, [label], registry=self.registry, buckets=buckets
        )

    def request(self, cluster: ClusterName, verb: str, code: int, seconds: float) -> None:
        """One attempt of a client ended; code 0 means that there was no answer."""
        labels = (cluster, verb, f"{code // 100}xx" if code else "none")
        bound = self.requests.get(labels)
        if bound is None:
            bound = self.requests[labels] = self.client_requests.labels(*labels)
        bound.inc()
        self.duration_of(verb).observe(seconds)

    def watch_restarted(
        self, cluster: ClusterName, resource: Resource, error: KubeError | None
    ) -> None:
        """A client opens a watch again."""
        self.watch_restarts.labels(cluster).inc()

    def credential_refreshed(self, cluster: ClusterName) -> None:
        """A client fetched a new credential."""
        self.credential_refreshes.labels(cluster).inc()

    def leader(self, *, leads: bool) -> None:
        """This process leads from now on, or no more."""
        self.is_leader.set(int(leads))

    def event(self, cluster: ClusterName, outcome: str) -> None:
        """An Event was written, dropped, or could not be written."""
        self.events.labels(cluster, outcome).inc()

    def webhook(self, path: str, code: int) -> None:
        """A webhook answered a request."""
        self.webhooks.labels(path, str(code)).inc()

    def controller(self, name: str) -> "ControllerMetrics":
        return ControllerMetrics(self, name)

    def watch_queue(self, name: str, queue: WorkQueue) -> None:
        """Tell the state of a queue, as it is at each scrape."""
        depth, longest, unfinished = (
            gauge.labels(name)
            for gauge in (self.queue_depth, self.queue_longest, self.queue_unfinished)
        )

        def read() -> None:
            depth.set(queue.depth)
            longest.set(queue.longest_running_seconds())
            unfinished.set(queue.unfinished_seconds())

        self.before_scrape.append(read)

    def forget(self, cluster: ClusterName) -> None:
        """Drop what was counted for a cluster that left."""
        for metric in (
            self.client_requests,
            self.watch_restarts,
            self.credential_refreshes,
            self.events,
        ):
            metric.remove_by_labels({"cluster": cluster})
        for labels in [labels for labels in self.requests if labels[0] == cluster]:
            del self.requests[labels]

    async def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as text, and its content type."""
        from prometheus_client.exposition import choose_encoder

        for read in self.before_scrape:
            read()
        encode, content_type = choose_encoder(accept)
        # A thousand clusters make megabytes of text: not on the event loop.
        return await asyncio.to_thread(encode, self.registry), content_type


class ControllerMetrics:
    """The observer of one controller and its queue, with its label sets bound."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.adds = metrics.queue_adds.labels(name)
        self.retries = metrics.queue_retries.labels(name)
        self.waits = metrics.queue_waits.labels(name)
        self.works = metrics.queue_works.labels(name)
        self.durations = metrics.reconcile_durations.labels(name)
        self.results = {
            result: metrics.reconciles.labels(name, result)
            for result in ("success", "again", "error", "terminal", "timeout", "cancelled")
        }

    def added(self) -> None:
        """A request is waiting."""
        self.adds.inc()

    def started(self, waited_seconds: float) -> None:
        """A request was taken."""
        self.waits.observe(waited_seconds)

    def finished(self, worked_seconds: float) -> None:
        """The work on a request ended."""
        self.works.observe(worked_seconds)

    def retried(self) -> None:
        """A request comes again."""
        self.retries.inc()

    def reconciled(self, result: str, seconds: float) -> None:
        """A reconcile ended."""
        self.results[result].inc()
        self.durations.observe(seconds)
