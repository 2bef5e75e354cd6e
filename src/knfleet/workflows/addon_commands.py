"""What `knfleet addon` does: install, remove, make and explain add-ons."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from knfleet.api.addon.addon_configuration import ConfigReferent, ConfigType
from knfleet.api.addon.addondeploymentconfig import CONFIGS
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import (
    CLUSTER_ADDONS,
    ClusterManagementAddOn,
    PlacementStrategy,
)
from knfleet.api.addon.managedclusteraddon import ADDONS, ManagedClusterAddOn
from knfleet.api.addon.names import DEPLOYMENT_CONFIGS, GROUP, TEMPLATES
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.cluster.placement import DECISIONS, PLACEMENT_LABEL
from knfleet.api.conditions import StandardCondition, find
from knfleet.api.meta import Key, Object
from knfleet.api.schema import decode
from knfleet.hub.addon.resolution import chosen_configs
from knfleet.hub.addon.spec_hash import spec_hash
from knfleet.hub.placement.decisions.decision_groups import decided_groups
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound


class AddOnCommandError(Exception):
    """A command that cannot be carried out; the message says why and what helps."""


class NewTemplate(Struct, frozen=True):
    """A template add-on that is made from plain manifests."""

    name: str
    manifests: tuple[Object, ...]
    version: str = "0.0.1"
    registers: bool = False
    """Whether its agents get access to the hub."""
    cluster_role: str = ""
    """ClusterRole that its agents have in the namespace of their cluster."""
    labels: dict[str, str] = {}

    def objects(self) -> list[Object]:
        """The AddOnTemplate and the ClusterManagementAddOn."""
        spec: Object = {
            "addonName": self.name,
            "agentSpec": {"workload": {"manifests": list(self.manifests)}},
        }
        if self.registers or self.cluster_role:
            permission: Object = {
                "type": "CurrentCluster",
                "currentCluster": {"clusterRoleName": self.cluster_role},
            }
            permissions = [permission] if self.cluster_role else []
            client = {"hubPermissions": permissions}
            spec["registration"] = [{"type": "KubeClient", "kubeClient": client}]
        template = f"{self.name}-{self.version}"
        supported: list[Object] = [
            {"group": GROUP, "resource": TEMPLATES, "defaultConfig": {"name": template}},
            {"group": GROUP, "resource": DEPLOYMENT_CONFIGS},
        ]
        addon: Object = {
            "addOnMeta": {"displayName": self.name, "description": f"Template add-on {self.name}."},
            "supportedConfigs": supported,
            "installStrategy": {"type": "Manual"},
        }
        meta: Object = {"labels": self.labels} if self.labels else {}
        return [
            {
                "apiVersion": ADDON_TEMPLATES.api_version,
                "kind": ADDON_TEMPLATES.kind,
                "metadata": {"name": template, **meta},
                "spec": spec,
            },
            {
                "apiVersion": CLUSTER_ADDONS.api_version,
                "kind": CLUSTER_ADDONS.kind,
                "metadata": {"name": self.name, **meta},
                "spec": addon,
            },
        ]


def addon_manifest(
    name: str,
    cluster: str,
    namespace: str = "",
    *,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> Object:
    """A ManagedClusterAddOn."""
    meta: Object = {"name": name, "namespace": cluster}
    if annotations:
        meta["annotations"] = annotations
    if labels:
        meta["labels"] = labels
    spec = {"installNamespace": namespace} if namespace else {}
    return {
        "apiVersion": ADDONS.api_version,
        "kind": ADDONS.kind,
        "metadata": meta,
        "spec": spec,
    }


async def check(client: Client, names: Iterable[str], clusters: Iterable[str]) -> None:
    """Raise `AddOnCommandError` about add-ons and clusters that do not exist."""
    for resource, wanted in ((CLUSTER_ADDONS, names), (CLUSTERS, clusters)):
        for name in wanted:
            try:
                await client.get(resource, name)
            except NotFound as error:
                found = await client.list(resource, metadata_only=True)
                known = ", ".join(sorted(each["metadata"]["name"] for each in found.items))
                raise AddOnCommandError(
                    f"{resource.kind} {name} does not exist; there are: {known or 'none'}"
                ) from error


async def all_clusters(client: Client) -> list[str]:
    """The names of all clusters."""
    found = await client.list(CLUSTERS, metadata_only=True)
    return sorted(each["metadata"]["name"] for each in found.items)


async def create(client: Client, made: NewTemplate, *, overwrite: bool) -> None:
    """Make a template add-on."""
    template, addon = made.objects()
    for resource, manifest in ((ADDON_TEMPLATES, template), (CLUSTER_ADDONS, addon)):
        name = manifest["metadata"]["name"]
        try:
            await client.get(resource, name)
        except NotFound:
            await client.create(resource, manifest)
            continue
        if not overwrite:
            raise AddOnCommandError(
                f"{resource.kind} {name} exists; use --overwrite to change it, or another --version"
            )
        await client.apply(resource, manifest)


class AddOnRow(Struct, frozen=True):
    """An add-on on a cluster, as tables show it."""

    cluster: str
    name: str
    available: str
    degraded: str
    progressing: str
    message: str = ""
    """The first thing that is wrong or awaited."""


def row(addon: ManagedClusterAddOn) -> AddOnRow:
    """An add-on on a cluster, as tables show it."""
    conditions = addon.status.conditions

    def status(type_: str) -> str:
        found = find(conditions, type_)
        return found.status if found else ""

    wrong = [each for each in conditions if is_wrong(each)]
    return AddOnRow(
        addon.cluster,
        addon.name,
        status("Available"),
        status("Degraded"),
        status("Progressing"),
        f"{wrong[0].type}: {wrong[0].message}" if wrong else "",
    )


def is_wrong(condition: StandardCondition) -> bool:
    """Whether a condition is about something that is wrong or awaited."""
    if condition.type == "Progressing":
        return condition.status == "True" or condition.reason not in ("Completed", "")
    return condition.status != ("False" if condition.type == "Degraded" else "True")


async def rows(client: Client, name: str = "", cluster: str = "") -> list[AddOnRow]:
    """Add-ons on clusters: of one add-on, or of one cluster, or all."""
    found = await client.list(ADDONS, cluster)
    addons = [decode(each, ManagedClusterAddOn) for each in found.items]
    return sorted(
        (row(each) for each in addons if not name or each.name == name),
        key=lambda each: (each.name, each.cluster),
    )


class ConfigSource(Struct, frozen=True):
    """A configuration that an add-on uses on a cluster, and where that is written."""

    type: str
    name: str
    source: str
    state: str
    """Whether it is applied, waits for the rollout, or does not exist."""


async def explain(client: Client, name: str, cluster: str) -> list[ConfigSource]:
    """Where each configuration of an add-on on a cluster comes from."""
    await check(client, [name], [cluster])
    fleet = decode(await client.get(CLUSTER_ADDONS, name), ClusterManagementAddOn)
    try:
        addon = decode(await client.get(ADDONS, name, cluster), ManagedClusterAddOn)
    except NotFound as error:
        raise AddOnCommandError(
            f"add-on {name} is not installed on {cluster}; run `knfleet addon enable --names {name}"
            f" --clusters {cluster}`"
        ) from error
    strategy = await selecting(client, fleet, cluster)
    return [
        ConfigSource(
            str(each.type),
            str(each.referent),
            each.source,
            await state_of(client, addon, each.type, each.referent),
        )
        for each in chosen_configs(fleet, addon, strategy)
    ]


async def selecting(
    client: Client, fleet: ClusterManagementAddOn, cluster: str
) -> PlacementStrategy | None:
    """The last placement of the install strategy that selects a cluster."""
    if fleet.spec.install_strategy.type != "Placements":
        return None
    found: PlacementStrategy | None = None
    for each in fleet.spec.install_strategy.placements:
        labels = f"{PLACEMENT_LABEL}={each.name}"
        decisions = await client.list(DECISIONS, each.namespace, labels=labels)
        groups = decided_groups(decisions.items)
        if any(cluster in group.clusters for group in groups):
            found = each
    return found


async def state_of(
    client: Client, addon: ManagedClusterAddOn, type_: ConfigType, referent: ConfigReferent
) -> str:
    """How far a configuration is on a cluster."""
    reference = next(
        (
            each
            for each in addon.status.config_references
            if each.type == type_
            and each.desired_config is not None
            and each.desired_config.referent == referent
        ),
        None,
    )
    resource = {DEPLOYMENT_CONFIGS: CONFIGS, TEMPLATES: ADDON_TEMPLATES}.get(type_.resource)
    if resource is not None and type_.group == GROUP:
        key = Key(referent.namespace if resource.namespaced else "", referent.name)
        try:
            now = spec_hash(await client.get(resource, key.name, key.namespace))
        except NotFound:
            return "does not exist"
        if reference is None or reference.desired_config is None:
            return "not released yet"
        if reference.desired_config.spec_hash != now:
            return "changed, not released yet"
    if reference is None or reference.desired_config is None:
        return "not released yet"
    is_applied = reference.last_applied_config == reference.desired_config
    return "applied" if is_applied else "being applied"


def addon_names(text: str) -> Sequence[str]:
    """Names as a,b."""
    return [each.strip() for each in text.split(",") if each.strip()]
