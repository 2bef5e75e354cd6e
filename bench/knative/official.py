"""The benchmark's work, done by the official client; prints its figures as JSON.

It runs in a process of its own, where the package `kubernetes` can be imported.
"""

import importlib
import itertools
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.knative.workload import CONCURRENCY, NAMESPACE, OBJECTS, Figures, objects


def work(rounds: int) -> Figures:
    """Apply, list and watch, a few times."""
    client, config, watch = (
        importlib.import_module(f"kubernetes.{name}") for name in ("client", "config", "watch")
    )
    figures = Figures()
    settings = client.Configuration()
    config.load_kube_config(client_configuration=settings)
    settings.connection_pool_maxsize = CONCURRENCY
    core = client.CoreV1Api(client.ApiClient(settings))

    def apply(manifest: dict[str, Any]) -> object:
        return core.patch_namespaced_config_map(
            manifest["metadata"]["name"],
            NAMESPACE,
            manifest,
            field_manager="bench",
            force=True,
            _content_type="application/apply-patch+yaml",
        )

    with ThreadPoolExecutor(CONCURRENCY) as threads:
        for number in range(rounds + 1):
            manifests = objects(f"official {number} {time.time()}")
            stop = figures.start("apply")
            list(threads.map(apply, manifests))
            stop(OBJECTS)
            stop = figures.start("list")
            listing = core.list_namespaced_config_map(NAMESPACE, label_selector="app=bench")
            stop(len(listing.items))
            stop = figures.start("watch")
            events = watch.Watch().stream(
                core.list_namespaced_config_map,
                NAMESPACE,
                label_selector="app=bench",
                resource_version="0",
            )
            for _ in itertools.islice(events, OBJECTS):
                pass
            stop(OBJECTS)
    return figures


if __name__ == "__main__":
    print(json.dumps(work(int(sys.argv[1])).milliseconds))
