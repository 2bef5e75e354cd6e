"""What a red run leaves for whoever looks into it, before the clusters are taken down.

The logs of every process of every cluster, and what each spoke holds in the namespaces of Knative:
who owns it, whether it is being deleted, and what holds it.
"""

import shutil
from pathlib import Path

from knfleet.api.core import DEPLOYMENTS, PODS, REPLICA_SETS
from knfleet.api.meta import Object, Resource
from knfleet.apply.manifest_fields import items
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError
from tests.chaos.stage import Stage

KINDS = (DEPLOYMENTS, REPLICA_SETS, PODS)
LIST_SECONDS = 10.0


async def keep(stage: Stage, folder: Path) -> None:
    """Copy the logs of all clusters, and write down what their workloads look like."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(stage.hub.lent.folder.logs, folder / "logs", dirs_exist_ok=True)
    for name, spoke in stage.spokes.items():
        lines = [line for each in KINDS for line in await rows(spoke.client, each)]
        (folder / f"{name}.txt").write_text("\n".join((*lines, "")))


async def rows(client: Client, resource: Resource) -> list[str]:
    """A line for each object of a kind, or why there is none."""
    try:
        found = await client.list(resource, deadline=LIST_SECONDS)
    except KubeError as error:
        return [f"{resource.kind}: {error}"]
    return [described(resource.kind, each) for each in found.items]


def described(kind: str, manifest: Object) -> str:
    """What decides whether an object can go."""
    meta = manifest["metadata"]
    owners = [
        f"{each['kind']}/{each['name']}/{each['uid']}" for each in items(meta, "ownerReferences")
    ]
    facts = {
        "uid": meta["uid"],
        "deleted": meta.get("deletionTimestamp", ""),
        "grace": str(meta.get("deletionGracePeriodSeconds", "")),
        "finalizers": ",".join(meta.get("finalizers", ())),
        "owners": ",".join(owners),
        "node": manifest.get("spec", {}).get("nodeName", ""),
        "phase": manifest.get("status", {}).get("phase", ""),
    }
    told = " ".join(f"{name}={value}" for name, value in facts.items() if value)
    return f"{kind} {meta['namespace']}/{meta['name']} {told}"
