"""The benchmark's work, done by our own client; prints its figures as JSON."""

import asyncio
import json
import sys
import time
from contextlib import aclosing

import uvloop

from bench.knative.workload import CONCURRENCY, NAMESPACE, OBJECTS, Figures, objects
from knfleet.api.core import CONFIG_MAPS, NAMESPACES
from knfleet.kube.auth.kubeconfig import load
from knfleet.kube.client.verbs import Client, ClientOptions


async def work(rounds: int) -> Figures:
    """Apply, list and watch, a few times."""
    figures = Figures()
    async with Client(load(), ClientOptions(concurrency=CONCURRENCY, reserve=0)) as client:
        head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await client.apply(NAMESPACES, head)
        for number in range(rounds + 1):
            manifests = objects(f"ours {number} {time.time()}")
            stop = figures.start("apply")
            await asyncio.gather(*(client.apply(CONFIG_MAPS, one) for one in manifests))
            stop(OBJECTS)
            stop = figures.start("list")
            listing = await client.list(CONFIG_MAPS, NAMESPACE, labels="app=bench")
            stop(len(listing.items))
            stop = figures.start("watch")
            watch = client.watch(CONFIG_MAPS, NAMESPACE, labels="app=bench", since="0")
            async with aclosing(watch) as events:
                for _ in range(OBJECTS):
                    await anext(events)
            stop(OBJECTS)
    return figures


if __name__ == "__main__":
    print(json.dumps(uvloop.run(work(int(sys.argv[1]))).milliseconds))
