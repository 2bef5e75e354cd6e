"""What must be on a cluster before a component is installed, and what is found there afterwards."""

import asyncio
import contextlib
from typing import cast

from knfleet.api.core import CRDS, NAMESPACES
from knfleet.api.meta import Key, Object
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, NotFound
from testbed.peers.samples import Sample
from testbed.waiting import until

OPERATOR_NAMESPACE = "knative-operator"
NAMESPACES_BESIDE = (OPERATOR_NAMESPACE, "istio-system", "istio-elsewhere")
WRITER = "manifestival"

FOREIGN = (
    ("networking.istio.io", "v1beta1", "Gateway", "gateways"),
    ("security.istio.io", "v1beta1", "PeerAuthentication", "peerauthentications"),
    ("projectcontour.io", "v1", "TLSCertificateDelegation", "tlscertificatedelegations"),
    ("cert-manager.io", "v1", "Certificate", "certificates"),
)
"""Kinds of other projects that releases use."""


def stand_in(group: str, version: str, kind: str, plural: str) -> Object:
    """A CRD for a kind of another project that takes everything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


async def prepare(client: Client, sample: Sample, definitions: list[Object]) -> None:
    """Make a cluster ready for one sample."""
    await define(client, [*definitions, *(stand_in(*kind) for kind in FOREIGN)])
    for name in {*NAMESPACES_BESIDE, sample.namespace}:
        await ensure_namespace(client, name)
    for manifest in sample.beforehand:
        resource = await client.discovery.resource(manifest["apiVersion"], manifest["kind"])
        await client.create(resource, manifest, Key.of(manifest).namespace)


async def ensure_namespace(client: Client, name: str) -> None:
    """Make a namespace unless it is there."""
    with contextlib.suppress(AlreadyExists):
        await client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )


async def define(client: Client, definitions: list[Object]) -> None:
    """Install CRDs, and wait until their kinds are served."""
    await asyncio.gather(*(client.apply(CRDS, crd) for crd in definitions))
    names = {crd["metadata"]["name"] for crd in definitions}

    async def all_established() -> bool:
        found = (await client.list(CRDS)).items
        return names <= {crd["metadata"]["name"] for crd in found if is_established(crd)}

    await until(all_established, "CRDs are established")
    client.discovery.forget()


def is_established(crd: Object) -> bool:
    """Whether the API server serves the kind."""
    conditions = cast("list[Object]", crd.get("status", {}).get("conditions") or [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


async def written(client: Client) -> list[Object]:
    """Everything that the Knative Operator's applying has written on a cluster."""
    client.discovery.forget()
    resources = [
        each.resource
        for each in await client.discovery.resources()
        if {"list", "delete"} <= set(each.verbs) and each.resource.plural != "events"
    ]
    found: list[Object] = []
    for resource in resources:
        with contextlib.suppress(NotFound):
            for item in (await client.list(resource)).items:
                managers = cast("list[Object]", item["metadata"].pop("managedFields", []))
                if any(entry.get("manager") == WRITER for entry in managers):
                    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
                    found.append({**item, **kind})
    return found
