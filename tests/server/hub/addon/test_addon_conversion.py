"""Conversion of add-on objects by the hub's webhook, called by a real API server."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS, CLUSTER_ADDONS_BETA
from knfleet.api.addon.conversion import CONVERSION_PATH
from knfleet.api.addon.managedclusteraddon import ADDONS, ADDONS_BETA
from knfleet.api.addon.names import INSTALL_NAMESPACE, KUBE_CLIENT_SIGNER, LIFECYCLE
from knfleet.api.core import CRDS, SECRETS
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import CLUSTER_MANAGER, CLUSTER_MANAGERS, OPERATOR_NAMESPACE
from knfleet.hub.certificates.port_certificates import PortCertificates
from knfleet.hub.webhook.webhook_objects import DEFINITIONS, SECRET
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import ApiError, Conflict, NotFound, ServerError
from knfleet.runtime.http.listen_address import ListenAddress
from testbed import hubs
from testbed.clusters import Lent
from testbed.fakes.sockets import free_port
from testbed.operators import Hub
from testbed.waiting import until
from tests.support.addons import DEPLOY_TYPE, TEMPLATE_TYPE, thing

HELLO = Key("default", "hello")
OTHERS = {LIFECYCLE: "self"}
"""Annotations of an add-on that the hub leaves to another manager."""
CONFIG = {**DEPLOY_TYPE, "name": "small", "namespace": "default"}
CLUSTER_ADDON: Object = {
    "addOnMeta": {"displayName": "Hello", "description": "says hello"},
    "addOnConfiguration": {"crdName": "hellos.example.com", "crName": "one"},
    "supportedConfigs": [
        {**DEPLOY_TYPE, "defaultConfig": {"name": "small", "namespace": "default"}},
        dict(TEMPLATE_TYPE),
    ],
    "installStrategy": {"type": "Manual"},
}
ADDON_STATUS: Object = {
    "namespace": "hello-agents",
    "kubeClientDriver": "csr",
    "registrations": [
        {"signerName": KUBE_CLIENT_SIGNER, "subject": {"user": "u", "groups": ["g"]}},
        {
            "signerName": "example.com/signer",
            "subject": {"user": "v", "organizationUnit": ["unit"]},
        },
    ],
    "configReferences": [
        {
            **CONFIG,
            "desiredConfig": {"name": "small", "namespace": "default", "specHash": "abc"},
            "lastObservedGeneration": 1,
        }
    ],
}
BETA_STATUS: Object = {
    "registrations": [
        {"type": "kubeClient", "kubeClient": {"driver": "token", "subject": {"user": "u"}}},
        {
            "type": "customSigner",
            "customSigner": {
                "signerName": "example.com/signer",
                "subject": {"user": "v", "organizationUnits": ["unit"]},
            },
        },
    ]
}


async def bundle(client: Client) -> str:
    """The CA of what is served."""
    found = PortCertificates.of(await client.get(SECRETS, SECRET, OPERATOR_NAMESPACE))
    assert found is not None
    return base64.b64encode(found.bundle).decode()


async def client_config(client: Client, definition: str) -> Object:
    """How the API server calls the webhook of a definition."""
    found = await client.get(CRDS, definition)
    return found["spec"]["conversion"]["webhook"]["clientConfig"]


async def put_client_config(client: Client, config: Mapping[str, Any]) -> None:
    """Have the API server call something else; `None` as a value removes a field."""
    patch = {"spec": {"conversion": {"webhook": {"clientConfig": config}}}}
    for each in DEFINITIONS:
        await client.patch(CRDS, Key("", each), patch)


@asynccontextmanager
async def converting(client: Client, connection: Connection) -> AsyncGenerator[None, None]:
    """A hub that converts; the API server calls it by its address, for there are no pods here."""
    service = {**(await client_config(client, DEFINITIONS[0]))["service"]}
    address = ListenAddress("127.0.0.1", free_port())
    async with hubs.running(connection, webhook=address) as running:
        assert running.webhook is not None
        await asyncio.wait_for(running.webhook.listening.wait(), 60)

        async def is_injected() -> bool:
            wanted = await bundle(client)
            return all(
                [
                    (await client_config(client, each)).get("caBundle") == wanted
                    for each in DEFINITIONS
                ]
            )

        await until(is_injected, "the CA is in the definitions")
        assert running.webhook.address is not None
        url = f"https://localhost:{running.webhook.address[1]}{CONVERSION_PATH}"
        await put_client_config(
            client, {"service": None, "url": url, "caBundle": await bundle(client)}
        )
        try:
            await until(lambda: is_converted(client), "the API server converts")
            yield
        finally:
            await put_client_config(client, {"url": None, "service": service})


async def is_converted(client: Client) -> bool:
    """Whether the API server converts both kinds."""
    try:
        for resource in (CLUSTER_ADDONS_BETA, ADDONS_BETA):
            namespace = "default" if resource.namespaced else ""
            await client.create(resource, thing(resource, "probe", {}), namespace, dry_run=True)
    except ApiError:
        return False
    return True


async def degraded(client: Client) -> Object:
    """What the ClusterManager says about add-ons."""
    found = await client.get(CLUSTER_MANAGERS, CLUSTER_MANAGER)
    conditions: list[Object] = found.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == "HubAddOnDegraded"), Object())


async def is_reported(client: Client, status: str, reason: str) -> None:
    """Return when the ClusterManager says something about add-ons."""

    async def holds() -> bool:
        found = await degraded(client)
        return (found.get("status"), found.get("reason")) == (status, reason)

    await until(holds, f"HubAddOnDegraded is {status} {reason}")


def content(manifest: Object) -> Object:
    """What users write and read of an object."""
    annotations = manifest["metadata"].get("annotations")
    return {
        "spec": manifest["spec"],
        "status": manifest.get("status", {}),
        "annotations": annotations,
    }


async def written_back(
    client: Client, stored: Resource, beta: Resource, key: Key
) -> tuple[Object, Object]:
    """An object in v1alpha1 before and after it was read and written in v1beta1."""
    while True:
        before = await client.get(stored, key.name, key.namespace)
        read = await client.get(beta, key.name, key.namespace)
        try:
            written = await client.replace(beta, read)
            status = {**written, "status": read.get("status", {})}
            await client.replace(beta, status, subresource="status")
        except Conflict:
            # The hub has something to write as well.
            continue
        return content(before), content(await client.get(stored, key.name, key.namespace))


async def test_objects_written_in_v1alpha1_are_read_and_written_in_v1beta1(
    fleet: Client, fleet_connection: Connection, fleet_lent: Lent
):
    """Fields that only v1alpha1 has come back."""
    await fleet.apply(CLUSTER_MANAGERS, thing(CLUSTER_MANAGERS, CLUSTER_MANAGER, {}))
    async with converting(fleet, fleet_connection):
        await is_reported(fleet, "False", "AddOnFunctional")
        made = thing(CLUSTER_ADDONS, "hello", CLUSTER_ADDON, annotations=OTHERS)
        await fleet.create(CLUSTER_ADDONS, made)
        spec = {"installNamespace": "hello-agents", "configs": [CONFIG]}
        await fleet.create(ADDONS, thing(ADDONS, "hello", spec), "default")
        await fleet.patch(ADDONS, HELLO, {"status": ADDON_STATUS}, subresource="status")

        beta = await fleet.get(CLUSTER_ADDONS_BETA, "hello")
        assert beta["spec"]["defaultConfigs"] == [
            CONFIG,
            {**TEMPLATE_TYPE, "name": "__reserved_no_default__"},
        ]
        assert "supportedConfigs" not in beta["spec"]
        beta_addon = await fleet.get(ADDONS_BETA, "hello", "default")
        assert beta_addon["metadata"]["annotations"][INSTALL_NAMESPACE] == "hello-agents"
        assert beta_addon["status"]["registrations"][0]["type"] == "kubeClient"
        listed = await fleet.list(ADDONS_BETA, "default")
        assert [each["spec"] for each in listed.items] == [beta_addon["spec"]]

        shown = await Hub(fleet_lent, fleet).kubectl("get", "managedclusteraddon", "-A")
        heading, *rows = [line.split() for line in shown.splitlines()]
        assert heading == ["NAMESPACE", "NAME", "AVAILABLE", "DEGRADED", "PROGRESSING"]
        assert ["default", "hello"] in [each[:2] for each in rows]
        for stored, other, key in (
            (CLUSTER_ADDONS, CLUSTER_ADDONS_BETA, Key("", "hello")),
            (ADDONS, ADDONS_BETA, HELLO),
        ):
            before, after = await written_back(fleet, stored, other, key)
            assert after == before
        await fleet.delete(ADDONS_BETA, HELLO)
        await fleet.delete(CLUSTER_ADDONS_BETA, Key("", "hello"))


def given(addon: Object) -> tuple[Object, list[Object]]:
    """What a test wrote of an add-on; the hub writes other parts of its status."""
    return addon["spec"], addon["status"]["registrations"]


@pytest.mark.full
async def test_objects_written_in_v1beta1_outlive_the_webhook(
    fleet: Client, fleet_connection: Connection
):
    """They are stored in v1alpha1; while the webhook is down that says so, and nothing is lost."""
    await fleet.apply(CLUSTER_MANAGERS, thing(CLUSTER_MANAGERS, CLUSTER_MANAGER, {}))
    async with converting(fleet, fleet_connection):
        spec: Object = {"defaultConfigs": [CONFIG], "installStrategy": {"type": "Manual"}}
        made = thing(CLUSTER_ADDONS_BETA, "hello", spec, annotations=OTHERS)
        await fleet.create(CLUSTER_ADDONS_BETA, made)
        addon = thing(ADDONS_BETA, "hello", {"configs": [CONFIG]})
        await fleet.create(ADDONS_BETA, addon, "default")
        await fleet.patch(ADDONS_BETA, HELLO, {"status": BETA_STATUS}, subresource="status")
        stored = await fleet.get(ADDONS, "hello", "default")
        assert stored["status"]["kubeClientDriver"] == "token"
        assert stored["status"]["registrations"][1]["subject"]["organizationUnit"] == ["unit"]
        read = await fleet.get(ADDONS_BETA, "hello", "default")
        assert read["status"]["registrations"] == BETA_STATUS["registrations"]
        assert (await fleet.get(CLUSTER_ADDONS_BETA, "hello"))["spec"]["defaultConfigs"] == [CONFIG]

    with pytest.raises(ServerError, match=r"conversion webhook for .*ManagedClusterAddOn failed"):
        await fleet.create(ADDONS_BETA, thing(ADDONS_BETA, "late", {}), "default")
    assert given(await fleet.get(ADDONS, "hello", "default")) == given(stored)
    await fleet.patch(ADDONS, HELLO, {"metadata": {"labels": {"written": "meanwhile"}}})
    async with hubs.running(fleet_connection):
        await is_reported(fleet, "True", "ConversionUnavailable")
        assert "nothing is lost" in (await degraded(fleet))["message"]
    async with converting(fleet, fleet_connection):
        await is_reported(fleet, "False", "AddOnFunctional")
        again = await fleet.get(ADDONS_BETA, "hello", "default")
        assert given(again) == given(read)
        assert again["metadata"]["labels"] == {"written": "meanwhile"}
        with pytest.raises(NotFound):
            await fleet.get(ADDONS_BETA, "late", "default")
        await fleet.delete(ADDONS_BETA, HELLO)
        await fleet.delete(CLUSTER_ADDONS_BETA, Key("", "hello"))
