"""Who installs by a ClusterProfile must be allowed to use it, where that is asked for."""

from collections.abc import AsyncIterator

import pytest

from knfleet.api.core import CRDS, NAMESPACES
from knfleet.api.crds.generator import definitions
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.hub.admission.profile_use import PROFILE_USE
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden
from knfleet.runtime import served_kinds
from knfleet.workflows.object_lists import apply_all
from testbed.clusters import Lent
from testbed.hubs import with_token
from testbed.waiting import until
from tests.support.dashboards import RealHub

WRITES = {
    "apiGroups": ["operator.knative.dev"],
    "resources": ["*"],
    "verbs": ["create", "get", "patch", "update", "delete"],
}
USES = {
    "apiGroups": ["multicluster.x-k8s.io"],
    "resources": ["clusterprofiles"],
    "resourceNames": ["spoke1"],
    "verbs": ["use"],
}


def installation(resource: Resource, name: str, profile: str = "") -> Object:
    """A custom resource for a spoke, or for the hub itself."""
    reference = {"clusterProfileRef": {"name": profile, "namespace": "fleet-system"}}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"version": "1.22.1"} | (reference if profile else {}),
    }


@pytest.fixture
async def prepared(lent: Lent) -> AsyncIterator[RealHub]:
    """A hub that has the definitions, two namespaces, and the rule."""
    async with Client(lent.connection) as client:
        for manifest in definitions():
            await client.apply(CRDS, manifest)
        await served_kinds.wait_for(client, (SERVINGS, EVENTINGS))
        for name in ("team-a", "fleet-system"):
            manifest: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await client.apply(NAMESPACES, manifest)
        yield RealHub(client, lent.connection)


async def test_only_who_may_use_a_profile_installs_by_it(prepared: RealHub) -> None:
    """On creation and with every change of the spec; others' requests are as they were."""
    hub = prepared
    token = await hub.account("tenant", WRITES, inside="team-a")
    async with Client(with_token(hub.connection, token)) as tenant:
        await tenant.create(SERVINGS, installation(SERVINGS, "before", "spoke1"))
        await apply_all(hub.client, PROFILE_USE.manifests())

        async def is_enforced() -> bool:
            try:
                await tenant.create(SERVINGS, installation(SERVINGS, "first", "spoke2"))
            except Forbidden:
                return True
            await hub.client.delete(SERVINGS, Key("team-a", "first"))
            return False

        await until(is_enforced, "the rule is enforced")
        for resource in (SERVINGS, EVENTINGS):
            with pytest.raises(Forbidden, match="to install by ClusterProfile fleet-system/spoke1"):
                await tenant.create(resource, installation(resource, "new", "spoke1"))
        await tenant.create(SERVINGS, installation(SERVINGS, "local"))
        changed = {"spec": {"version": "1.23.0"}}
        with pytest.raises(Forbidden, match="to install by ClusterProfile fleet-system/spoke1"):
            await tenant.patch(SERVINGS, Key("team-a", "before"), changed)
        note = {"metadata": {"annotations": {"a": "b"}}}
        await tenant.patch(SERVINGS, Key("team-a", "before"), note)

        await hub.account("tenant", USES, inside="fleet-system")

        async def is_granted() -> bool:
            try:
                await tenant.patch(SERVINGS, Key("team-a", "before"), changed)
            except Forbidden:
                return False
            return True

        await until(is_granted, "the tenant may use spoke1")
        await tenant.create(EVENTINGS, installation(EVENTINGS, "new", "spoke1"))
        with pytest.raises(Forbidden, match="fleet-system/spoke2"):
            await tenant.create(SERVINGS, installation(SERVINGS, "new", "spoke2"))
        await tenant.delete(SERVINGS, Key("team-a", "before"))
    await hub.client.create(SERVINGS, installation(SERVINGS, "by-admin", "spoke2"))
