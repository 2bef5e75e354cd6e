"""Which works are meant by names and clusters."""

import asyncio
from collections.abc import Sequence

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.meta import Key, Object
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.view.suggestions import meant
from knfleet.workflows.work.work_delivery import WorkError, belongs_to


async def works_named(
    client: Client, names: Sequence[str], clusters: Sequence[str]
) -> list[Object]:
    """The works of some names in some clusters, by cluster and name; of all when none are given.

    Raises `WorkError` for a name or a cluster that there is not.
    """
    lists = await asyncio.gather(*(client.list(WORKS, each) for each in clusters or [""]))
    found = sorted((each for listing in lists for each in listing.items), key=Key.of)
    await check_clusters(client, clusters, found)
    known = {each["metadata"]["name"] for each in found}
    missing = [name for name in names if name not in known]
    if missing:
        where = f" in {', '.join(clusters)}" if clusters else ""
        raise WorkError(f"work {missing[0]} does not exist{where}; {meant(missing[0], known)}")
    kinds = {"apiVersion": WORKS.api_version, "kind": WORKS.kind}
    return [{**kinds, **each} for each in found if not names or is_named(each, names)]


def is_named(work: Object, names: Sequence[str]) -> bool:
    """Whether a work has one of some names, or is a part of a set that has."""
    own = work["metadata"]["name"]
    return own in names or any(belongs_to(work, name) for name in names)


async def check_clusters(client: Client, clusters: Sequence[str], found: Sequence[Object]) -> None:
    """Raise `WorkError` for a cluster that there is not; one with works is not looked for."""
    seen = {each["metadata"]["namespace"] for each in found}
    unseen = [each for each in clusters if each not in seen]
    if not unseen:
        return
    listed = await client.list(CLUSTERS, metadata_only=True)
    known = sorted(each["metadata"]["name"] for each in listed.items)
    for each in unseen:
        if each not in known:
            raise WorkError(f"ManagedCluster {each} does not exist; {meant(each, known)}")
