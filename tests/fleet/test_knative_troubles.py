"""What stands in the way of an installation: each is told, and outlived by itself."""

import base64
from pathlib import Path
from typing import Any

import pytest

from knfleet.api.core import (
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    SERVICES,
    VALIDATING_WEBHOOKS,
)
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import items
from knfleet.dev.node.annotations import WEBHOOK
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.errors import ApiError, Forbidden
from knfleet.kube.yaml import dump_all
from testbed.operators import Hub, Operator
from testbed.waiting import until
from tests.support.objects import config_map, deployment, manifest, service

LABELS = {"app.kubernetes.io/version": "1.23.0"}
THINGS = Resource("example.com", "v1", "Thing", "things")


def additional(path: Path, *manifests: Object) -> dict[str, Any]:
    """What to write into a spec, so that these objects are installed besides."""
    for each in manifests:
        each["metadata"]["labels"] = LABELS
    path.write_text(dump_all(manifests))
    return {"version": "1.23", "ingress": {}, "additionalManifests": [{"URL": str(path)}]}


async def test_a_webhook_that_denies_is_quoted_and_outlived(
    knative_hub: Hub, small: Operator
) -> None:
    """What it looks at is refused, the rest is installed; when it lets go, so is that."""
    hub = knative_hub
    refuser = service("refuser", "default")
    refuser["metadata"]["annotations"] = {WEBHOOK: "deny"}
    await hub.client.create(SERVICES, refuser)
    workload = deployment("refuser")
    workload["metadata"]["namespace"] = "default"
    await hub.client.create(DEPLOYMENTS, workload)
    await hub.client.create(VALIDATING_WEBHOOKS, refusing(hub))
    await until(lambda: denies(hub), "the webhook denies")

    await hub.create(SERVINGS, version="1.23", ingress={})

    said = await hub.says(SERVINGS, "InstallSucceeded", "no.example.com", "denied the request")
    assert "Service knative-serving/controller" in said
    assert await hub.exists(DEPLOYMENTS, "controller")
    await hub.tells("InternalError", "no.example.com")
    await hub.client.delete(VALIDATING_WEBHOOKS, Key("", "refuser"))
    await hub.ready(SERVINGS, "1.23.0")


def refusing(hub: Hub) -> Object:
    """The configuration of a webhook that looks at Services."""
    authority = (hub.lent.folder.pki(hub.lent.name) / "webhook-ca.crt").read_bytes()
    webhook: Object = {
        "name": "no.example.com",
        "clientConfig": {
            "service": {"namespace": "default", "name": "refuser"},
            "caBundle": base64.b64encode(authority).decode(),
        },
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["services"],
            }
        ],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }
    return manifest(VALIDATING_WEBHOOKS, "refuser", webhooks=[webhook])


async def denies(hub: Hub) -> bool:
    """Whether the webhook refuses Services by now."""
    try:
        await hub.client.create(SERVICES, service("probe", "default"), dry_run=True)
    except Forbidden:
        return True
    return False


def definition(plural: str, kind: str, **schema: Any) -> Object:
    """A CRD with a schema."""
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", **schema}},
    }
    spec: Object = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": plural, "kind": kind},
        "versions": [version],
    }
    return manifest(CRDS, f"{plural}.example.com", spec=spec)


async def test_a_definition_that_is_not_served_is_named_until_it_is(
    knative_hub: Hub, small: Operator, tmp_path: Path
) -> None:
    """Another one has its kind; what needs it waits, and all comes right when the other goes."""
    hub = knative_hub
    await hub.client.create(CRDS, definition("others", "Thing"))
    await until(lambda: is_established(hub, "others.example.com"), "the other is served")
    objects = definition("things", "Thing"), manifest(THINGS, "one", "knative-serving")

    await hub.create(SERVINGS, **additional(tmp_path / "more.yaml", *objects))

    words = "CustomResourceDefinition things.example.com", "is already in use"
    await hub.says(SERVINGS, "InstallSucceeded", *words)
    passes = await small.passes()
    await until(lambda: made_passes(small, passes + 2), "it is tried again")
    said = await hub.says(SERVINGS, "InstallSucceeded", *words)
    await small.kill()
    await small.start()
    await until(lambda: made_passes(small, 2), "it is tried again by another process")
    assert await hub.says(SERVINGS, "InstallSucceeded", *words) == said
    await hub.tells("InternalError", "things.example.com")
    await hub.client.delete(CRDS, Key("", "others.example.com"))
    await hub.ready(SERVINGS, "1.23.0")
    assert await hub.exists(THINGS, "one")


async def made_passes(operator: Operator, count: float) -> bool:
    """Whether so many passes were made."""
    try:
        return await operator.passes() >= count
    except OSError:  # it does not listen yet
        return False


async def is_established(hub: Hub, name: str) -> bool:
    """Whether a CRD is served."""
    found = items(await hub.client.get(CRDS, name), "status", "conditions")
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)


@pytest.mark.full
async def test_a_schema_that_is_not_structural_is_named_until_it_is_mended(
    knative_hub: Hub, small: Operator, tmp_path: Path
) -> None:
    """The rest is installed meanwhile; nobody has to touch the custom resource."""
    hub = knative_hub
    wrong = definition("things", "Thing", properties={"size": {"description": "no type"}})
    one = manifest(THINGS, "one", "knative-serving")

    await hub.create(SERVINGS, **additional(tmp_path / "more.yaml", wrong, one))

    said = await hub.says(SERVINGS, "InstallSucceeded", "things.example.com", "properties[size]")
    assert "(Invalid)" in said
    assert await hub.exists(DEPLOYMENTS, "controller")
    await hub.tells("InternalError", "properties[size]")
    additional(tmp_path / "more.yaml", definition("things", "Thing"), one)
    await hub.ready(SERVINGS, "1.23.0")
    assert await hub.exists(THINGS, "one")


async def test_manifests_without_serving_are_refused_and_nothing_is_deleted(
    knative_hub: Hub, small: Operator, tmp_path: Path
) -> None:
    """One wrong address must not cost a running installation."""
    hub = knative_hub
    await hub.create(SERVINGS, version="1.23", ingress={})
    await hub.ready(SERVINGS, "1.23.0")
    file = tmp_path / "wrong.yaml"
    file.write_text(dump_all([config_map("wrong", "default"), deployment("wrong")]))

    await hub.change(SERVINGS, manifests=[{"URL": str(file)}])

    said = await hub.says(SERVINGS, "InstallSucceeded", "webhook deployment not found in manifest")
    assert str(file) in said
    assert await hub.exists(DEPLOYMENTS, "controller")
    assert not await hub.exists(DEPLOYMENTS, "wrong")
    await hub.change(SERVINGS, manifests=None)
    await hub.ready(SERVINGS, "1.23.0")


async def test_most_workloads_go_only_for_manifests_of_the_same_component(
    knative_hub: Hub, small: Operator, tmp_path: Path
) -> None:
    """The definitions of Eventing alone do not replace Eventing; a part of it may be left out."""
    hub = knative_hub
    names = ("eventing-webhook", "eventing-controller", "more")
    every = [deployment(name) for name in names]
    file = tmp_path / "eventing.yaml"
    file.write_text(dump_all(labelled(*every)))
    await hub.create(EVENTINGS, version="1.23", manifests=[{"URL": str(file)}])
    await hub.ready(EVENTINGS, "1.23")

    file.write_text(dump_all(labelled(definition("things", "Thing"))))
    await hub.change(EVENTINGS, config={"look": {"again": "1"}})

    said = await hub.says(
        EVENTINGS, "InstallSucceeded", "eventing-webhook deployment not found in manifest"
    )
    assert all(f"Deployment knative-eventing/{name}" in said for name in names)
    assert not await hub.exists(CRDS, "things.example.com")
    for name in names:
        assert await hub.exists(DEPLOYMENTS, name, "knative-eventing")

    file.write_text(dump_all(labelled(every[0])))
    await hub.change(EVENTINGS, config={"look": {"again": "2"}})
    await hub.ready(EVENTINGS, "1.23")
    await hub.tells("Pruned", "eventing-controller")


def labelled(*manifests: Object) -> list[Object]:
    """Objects as Eventing's release labels its own."""
    for each in manifests:
        each["metadata"]["labels"] = {**LABELS, "app.kubernetes.io/name": "knative-eventing"}
    return list(manifests)


@pytest.mark.full
async def test_what_another_tool_owned_is_taken_and_said_once(
    knative_hub: Hub, small: Operator
) -> None:
    """By force, as a release is all or nothing; an Event names the object and the other tool."""
    hub = knative_hub
    theirs = config_map("config-network", "knative-serving", version="theirs", own="kept")
    async with Client(hub.lent.connection, ClientOptions(manager="another-tool")) as other:
        await other.apply(CONFIG_MAPS, theirs)

    await hub.create(SERVINGS, version="1.23", ingress={})
    await hub.ready(SERVINGS, "1.23.0")
    await hub.change(SERVINGS, config={"features": {"again": "yes"}})
    await hub.ready(SERVINGS, "1.23.0")

    await hub.tells("FieldsTakenOver", "ConfigMap knative-serving/config-network", "another-tool")
    assert len(await hub.events("FieldsTakenOver")) == 1
    found = await hub.client.get(CONFIG_MAPS, "config-network", "knative-serving")
    assert found["data"] == {"version": "1.23.0", "own": "kept"}


@pytest.mark.full
async def test_what_cannot_be_decoded_does_not_stop_others(
    knative_hub: Hub, small: Operator
) -> None:
    """A definition without a schema lets anything in; each says what is wrong with it."""
    hub = knative_hub
    await loosen(hub)
    await hub.create(SERVINGS, "odd", config=["not", "a", "map"])
    await hub.client.create(
        SERVINGS, manifest(SERVINGS, "odder", "knative-serving", spec="nonsense")
    )
    said = await hub.says(SERVINGS, "InstallSucceeded", "spec.config", name="odd")
    assert said.startswith("Install failed with message: KnativeServing knative-serving/odd")
    await hub.tells("InternalError", "spec.config")
    await hub.delete(SERVINGS, "odd")
    await hub.gone(SERVINGS, "odd")
    await hub.says(SERVINGS, "InstallSucceeded", "spec", name="odder")
    await hub.client.create(
        SERVINGS, manifest(SERVINGS, "good", "knative-serving", spec={"version": 5})
    )

    await hub.delete(SERVINGS, "odder")
    await hub.change(SERVINGS, "good", version="1.23", ingress={})

    await hub.ready(SERVINGS, "1.23.0", "good")


async def loosen(hub: Hub) -> None:
    """Let custom resources be anything."""
    name = f"{SERVINGS.plural}.{SERVINGS.group}"
    found = await hub.client.get(CRDS, name)
    versions = found["spec"]["versions"]
    for version in versions:
        schema: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version["schema"] = {"openAPIV3Schema": schema}
    await hub.client.patch(CRDS, Key("", name), {"spec": {"versions": versions}})

    async def is_loose() -> bool:
        odd = manifest(SERVINGS, "probe", "knative-serving", spec="nonsense")
        try:
            await hub.client.create(SERVINGS, odd, dry_run=True)
        except ApiError:
            return False
        return True

    await until(is_loose, "anything is accepted")
