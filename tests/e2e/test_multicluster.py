"""A hub installs Knative on a spoke and removes it: upstream's own checks, in their order."""

from typing import Any

import pytest

from knfleet.api.knative.conditions import READY, TARGET_CLUSTER_RESOLVED
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Resource
from knfleet.kube.errors import NotFound
from testbed.waiting import until
from tests.e2e.site import Site

INSTALL_SECONDS = 300
REMOVE_SECONDS = 180
KOURIER: dict[str, Any] = {
    "ingress": {"kourier": {"enabled": True}},
    "config": {"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}},
}
CERTIFICATES = (
    Resource("cert-manager.io", "v1", "Certificate", "certificates"),
    Resource("cert-manager.io", "v1", "Issuer", "issuers"),
    Resource("cert-manager.io", "v1", "ClusterIssuer", "clusterissuers", namespaced=False),
    Resource("trust.cert-manager.io", "v1alpha1", "Bundle", "bundles", namespaced=False),
)


@pytest.mark.parametrize(
    ("resource", "spec"),
    [
        pytest.param(SERVINGS, KOURIER, id="serving"),
        pytest.param(EVENTINGS, {}, id="eventing", marks=pytest.mark.full),
    ],
)
async def test_multicluster(site: Site, resource: Resource, spec: dict[str, Any]) -> None:
    """From a custom resource on the hub to Deployments on the spoke, and back to nothing."""
    await site.create(resource, **spec)
    seen: set[str] = set()

    async def is_resolved() -> bool:
        seen.add(await site.condition(resource, TARGET_CLUSTER_RESOLVED))
        return "True" in seen

    await until(is_resolved, "the spoke is resolved")
    assert "False" not in seen

    async def is_ready() -> bool:
        return await site.condition(resource, READY) == "True"

    await until(is_ready, "the custom resource is ready", seconds=INSTALL_SECONDS)
    assert await site.condition(resource, TARGET_CLUSTER_RESOLVED) == "True"
    assert await site.are_available(resource)
    assert len(await site.anchors(resource)) == 1

    await site.delete(resource)
    await until(lambda: site.is_gone(resource), "it is removed", seconds=REMOVE_SECONDS)

    async def is_clean() -> bool:
        left = await site.deployments(resource) or await site.services(resource)
        return not left and not await site.anchors(resource)

    await until(is_clean, "nothing of it is on the spoke", seconds=REMOVE_SECONDS)
    assert await certificates(site) == []


async def certificates(site: Site) -> list[str]:
    """What is there of certificates; a kind that the spoke does not serve has no objects."""
    found: list[str] = []
    for resource in CERTIFICATES:
        try:
            found += [each["metadata"]["name"] for each in (await site.spoke.list(resource)).items]
        except NotFound:
            continue
    return found
