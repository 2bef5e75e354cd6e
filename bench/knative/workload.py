"""What both clients do in the benchmark, and how it is counted."""

import os
import random
import time
from collections.abc import Callable
from typing import Any

OBJECTS = int(os.environ.get("BENCH_OBJECTS", "500"))
CONCURRENCY = 32
NAMESPACE = "knfleet-bench"


def objects(mark: str) -> list[dict[str, Any]]:
    """ConfigMaps of about a kilobyte, which differ from round to round."""
    chance = random.Random(7)
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"bench-{number}",
                "namespace": NAMESPACE,
                "labels": {"app": "bench"},
            },
            "data": {"mark": mark, "text": "".join(chance.choices("abcdef ", k=900))},
        }
        for number in range(OBJECTS)
    ]


class Figures:
    """Milliseconds of this process's CPU for each kind of work, per object."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}

    def start(self, name: str) -> Callable[[int], None]:
        """Begin to count; the function that comes back ends it, for so many objects."""
        begun = time.process_time()

        def stop(count: int) -> None:
            used = (time.process_time() - begun) * 1000 / count
            self.milliseconds[name] = min(used, self.milliseconds.get(name, used))

        return stop
