"""Waiting for kinds that a cluster does not serve yet."""

import asyncio
from collections.abc import Iterable

from knfleet.api.meta import Resource
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError
from knfleet.runtime.logs import log

LOOK_SECONDS = 3.0
"""How often to look whether they are there."""


async def missing(client: Client, resources: Iterable[Resource]) -> str:
    """The kinds that a cluster does not serve, in words."""
    lacking: list[str] = []
    for resource in resources:
        try:
            await client.discovery.resource(resource.api_version, resource.kind)
        except KubeError:
            lacking.append(f"{resource.plural}.{resource.group}")
    return ", ".join(lacking)


async def wait_for(client: Client, resources: Iterable[Resource]) -> None:
    """Wait until a cluster serves some kinds, and say so while it does not."""
    wanted, logged = list(resources), ""
    while lacking := await missing(client, wanted):
        if lacking != logged:
            log.error(
                "custom resource definitions are missing; waiting for them",
                missing=lacking,
                remedy="knfleet manifests --crds | kubectl apply -f -",
            )
            logged = lacking
        await asyncio.sleep(LOOK_SECONDS)
