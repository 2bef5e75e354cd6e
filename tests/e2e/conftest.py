"""The site of the suite: the reader's clusters, or a hub and a spoke of this machine."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.manual_profiles import provider_file, register
from knfleet.kube.auth.kubeconfig import load
from knfleet.kube.client.verbs import Client
from testbed.clusters import Lend
from testbed.operators import Hub, Operator
from testbed.waiting import until
from tests.e2e.site import Names, Site, spoke_kubeconfig


@pytest.fixture
async def site(lend: Lend, bundle_root: Path, tmp_path: Path) -> AsyncIterator[Site]:
    """A hub with an operator and a spoke with a ClusterProfile; custom resources are removed."""
    names = Names.of(os.environ)
    kubeconfig = spoke_kubeconfig()
    if kubeconfig is not None:
        async with Client(load()) as hub, Client(load([kubeconfig])) as spoke:
            site = Site(names, hub, spoke)
            yield site
            await leave(site)
        return
    first, second = await lend(2)
    ground = DevClusters(first.folder)
    operator = Operator(first.kubeconfig, bundle_root, tmp_path / "operator.log")
    async with Client(first.connection) as hub, Client(second.connection) as spoke:
        await Hub(first, hub).prepare()
        profile = await register(ground, hub, second.name)
        here = Names(profile, names.homes, names.custom_resource)
        flag = f"--clusterprofile-provider-file={provider_file(ground)}"
        await operator.start("--disable-ha", flag)
        site = Site(here, hub, spoke)
        yield site
        await leave(site)
    await operator.stop()


async def leave(site: Site) -> None:
    """Remove what a failed test may have left."""
    for resource in (SERVINGS, EVENTINGS):
        await site.delete(resource)
        await until(lambda each=resource: site.is_gone(each), f"{resource.kind} is gone")
