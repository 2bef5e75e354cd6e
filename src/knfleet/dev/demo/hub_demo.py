"""What `knfleet demo` shows of one cluster: Knative on the hub, installed, upgraded and removed."""

from knfleet.api.core import NAMESPACES
from knfleet.api.meta import Object
from knfleet.dev.cluster_contents import contents
from knfleet.dev.demo.demo_steps import (
    EVENTING,
    SERVING,
    install,
    nothing_left,
    remove,
    served,
    together,
)
from knfleet.dev.demo.operator_process import operator
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.kube.client.verbs import Client

BOTH = (SERVING, EVENTING)


async def show_hub(ground: DevClusters, releases: str, progress: ProgressReporter) -> None:
    """Install both components on the hub, upgrade them, remove them; nothing stays but CRDs."""
    connection = ground.connection("hub")
    async with Client(connection) as client, operator(ground, releases) as process:
        await served(client)
        for wanted in BOTH:
            await client.apply(NAMESPACES, namespace(wanted.key.namespace))
        before = set(await contents(client))
        for version in ("1.22", "1.23"):
            verb = "installing" if version == "1.22" else "upgrading to"
            progress.report(f"hub: {verb} Knative {version} by custom resources")
            await together(*(install(client, each, version, progress) for each in BOTH))
        megabytes = process.memory_info().rss >> 20
        progress.report(f"hub: the operator uses {megabytes} MB; now both are deleted")
        await together(*(remove(client, each, progress) for each in BOTH))
        await nothing_left(client, before, "hub", progress)


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
