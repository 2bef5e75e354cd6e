"""Add-ons in tests: objects, and an agent that reports on works without applying them."""

from datetime import UTC, datetime
from typing import Any

from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import GROUP
from knfleet.api.cluster.placement import (
    DECISIONS,
    GROUP_INDEX_LABEL,
    GROUP_NAME_LABEL,
    PLACEMENT_LABEL,
    PLACEMENTS,
    SCHEDULING_DISABLED,
)
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, NotFound
from testbed.waiting import until

DEPLOY_TYPE = {"group": GROUP, "resource": "addondeploymentconfigs"}
TEMPLATE_TYPE = {"group": GROUP, "resource": "addontemplates"}


def thing(resource: Resource, name: str, spec: Object, namespace: str = "", **meta: Any) -> Object:
    """An object of a kind."""
    metadata: Object = {"name": name, **meta}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": spec,
    }


def deployment(name: str, namespace: str = "default", **pod: Any) -> Object:
    """A Deployment of one container."""
    labels = {"app": name}
    containers = [{"name": "agent", "image": "quay.io/example/agent:v1"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": containers, **pod},
            },
        },
    }


def config_map(name: str, namespace: str = "default", **data: str) -> Object:
    """A ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def template(addon: str, *manifests: Object, name: str = "", **spec: Any) -> Object:
    """An AddOnTemplate."""
    agent_spec = {"workload": {"manifests": list(manifests)}}
    made = {"addonName": addon, "agentSpec": agent_spec, **spec}
    return thing(ADDON_TEMPLATES, name or addon, made)


def cluster_addon(name: str, *placements: Object, default_config: str = "") -> Object:
    """A ClusterManagementAddOn with a template of the same name."""
    supported: list[Object] = [{**TEMPLATE_TYPE, "defaultConfig": {"name": name}}]
    deploy: Object = dict(DEPLOY_TYPE)
    if default_config:
        deploy["defaultConfig"] = {"name": default_config, "namespace": "default"}
    strategy: Object = {"type": "Manual"}
    if placements:
        strategy = {"type": "Placements", "placements": list(placements)}
    spec = {"supportedConfigs": [*supported, deploy], "installStrategy": strategy}
    return thing(CLUSTER_ADDONS, name, spec)


def addon(name: str, cluster: str, **spec: Any) -> Object:
    """A ManagedClusterAddOn."""
    return thing(ADDONS, name, spec, cluster)


def deployment_config(name: str, **spec: Any) -> Object:
    """An AddOnDeploymentConfig."""
    return thing(CONFIGS, name, spec, "default")


async def select(client: Client, name: str, *groups: tuple[str, list[str]]) -> None:
    """Have a Placement select clusters, in groups with names."""
    placement = thing(PLACEMENTS, name, {}, "default", annotations={SCHEDULING_DISABLED: "true"})
    await client.apply(PLACEMENTS, placement)
    for index, (group, clusters) in enumerate(groups):
        labels = {PLACEMENT_LABEL: name, GROUP_INDEX_LABEL: str(index), GROUP_NAME_LABEL: group}
        key = Key("default", f"{name}-decision-{index}")
        decision: Object = {
            "apiVersion": DECISIONS.api_version,
            "kind": DECISIONS.kind,
            "metadata": {"name": key.name, "namespace": "default", "labels": labels},
        }
        await client.apply(DECISIONS, decision)
        decisions = [{"clusterName": each, "reason": ""} for each in clusters]
        patch: Object = {"status": {"decisions": decisions}}
        await client.patch(DECISIONS, key, patch, subresource="status")
    count = sum(len(clusters) for _, clusters in groups)
    conditions = [said("PlacementSatisfied", "True", 1)]
    status: Object = {"status": {"numberOfSelectedClusters": count, "conditions": conditions}}
    await client.patch(PLACEMENTS, Key("default", name), status, subresource="status")


def said(type_: str, status: str, generation: int) -> Object:
    """A condition as an agent reports it."""
    return {
        "type": type_,
        "status": status,
        "reason": "Test",
        "message": "reported by a test",
        "lastTransitionTime": timestamp(datetime.now(UTC)),
        "observedGeneration": generation,
    }


async def report(
    client: Client,
    key: Key,
    *,
    applied: str = "True",
    ready: int = 1,
    values: dict[str, str] | None = None,
) -> None:
    """Report on a work as an agent does."""
    while True:
        work = await client.get(WORKS, key.name, key.namespace)
        generation = work["metadata"]["generation"]
        manifests = [
            {
                "resourceMeta": resource_meta(ordinal, manifest),
                "conditions": [said("Applied", applied, generation)],
                "statusFeedback": {"values": feedback(manifest, ready, values or {})},
            }
            for ordinal, manifest in enumerate(work["spec"]["workload"]["manifests"])
        ]
        status = {
            "conditions": [
                said("Applied", applied, generation),
                said("Available", applied, generation),
            ],
            "resourceStatus": {"manifests": manifests},
        }
        version = {"resourceVersion": work["metadata"]["resourceVersion"]}
        try:
            body = {"metadata": version, "status": status}
            await client.patch(WORKS, key, body, subresource="status")
        except Conflict:
            continue
        return


def resource_meta(ordinal: int, manifest: Object) -> Object:
    """Which object a manifest is."""
    group = manifest["apiVersion"].rpartition("/")[0]
    meta = manifest["metadata"]
    return {
        "ordinal": ordinal,
        "group": group,
        "version": manifest["apiVersion"].rpartition("/")[2],
        "kind": manifest["kind"],
        "resource": f"{manifest['kind'].lower()}s",
        "name": meta["name"],
        "namespace": meta.get("namespace", ""),
    }


def feedback(manifest: Object, ready: int, values: dict[str, str]) -> list[Object]:
    """The values that an agent reports of an object."""
    if manifest["kind"] == "Deployment":
        numbers = {"ReadyReplicas": ready, "Replicas": 1}
        return [
            {"name": name, "fieldValue": {"type": "Integer", "integer": number}}
            for name, number in numbers.items()
        ]
    return [
        {"name": name, "fieldValue": {"type": "String", "string": text}}
        for name, text in values.items()
    ]


async def work_of(client: Client, name: str, cluster: str) -> Object:
    """A work of an add-on, as soon as it is there."""

    async def exists() -> bool:
        try:
            await client.get(WORKS, name, cluster)
        except NotFound:
            return False
        return True

    await until(exists, f"work {cluster}/{name} is there")
    return await client.get(WORKS, name, cluster)


async def condition(client: Client, key: Key, type_: str) -> Object:
    """A condition of an add-on; empty when it has none of the type."""
    try:
        found = await client.get(ADDONS, key.name, key.namespace)
    except NotFound:
        return {}
    conditions: list[Object] = found.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == type_), Object())


async def is_said(client: Client, key: Key, type_: str, status: str, reason: str = "") -> None:
    """Return when an add-on has a condition with a status, and perhaps a reason."""

    async def holds() -> bool:
        found = await condition(client, key, type_)
        return found.get("status") == status and (not reason or found.get("reason") == reason)

    try:
        await until(holds, f"{key} has {type_}={status} {reason}")
    except AssertionError as error:
        found = await client.get(ADDONS, key.name, key.namespace)
        raise AssertionError(f"{error}; its status is {found.get('status')}") from error


async def is_gone(client: Client, resource: Resource, key: Key) -> None:
    """Return when an object is gone."""

    async def gone() -> bool:
        try:
            await client.get(resource, key.name, key.namespace)
        except NotFound:
            return True
        return False

    await until(gone, f"{resource.kind} {key} is gone")
