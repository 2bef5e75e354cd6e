"""Which configurations an add-on uses on a cluster, and where each comes from. Pure.

By type: those of the ManagedClusterAddOn; if it has none, those of the install strategy for the
Placement that selected the cluster; else the default of the ClusterManagementAddOn.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from knfleet.api.addon.addon_configuration import (
    AddOnConfig,
    ConfigReferent,
    ConfigSpecHash,
    ConfigType,
)
from knfleet.api.addon.clustermanagementaddon import ClusterManagementAddOn, PlacementStrategy
from knfleet.api.addon.managedclusteraddon import ConfigReference, ManagedClusterAddOn
from knfleet.api.addon.names import DEPLOYMENT_CONFIGS, GROUP, TEMPLATES

DEPLOYMENT_CONFIG = ConfigType(group=GROUP, resource=DEPLOYMENT_CONFIGS)
TEMPLATE = ConfigType(group=GROUP, resource=TEMPLATES)
BUILT_IN = (DEPLOYMENT_CONFIG, TEMPLATE)

Hashes = Callable[[ConfigType, ConfigReferent], str]
"""The hash of a configuration; empty when it is not known."""


class ChosenConfig(Struct, frozen=True):
    """A configuration that an add-on is to use on a cluster."""

    type: ConfigType
    referent: ConfigReferent
    source: str
    """Where it is written, for people."""


def chosen_configs(
    cluster_addon: ClusterManagementAddOn,
    addon: ManagedClusterAddOn | None = None,
    strategy: PlacementStrategy | None = None,
) -> list[ChosenConfig]:
    """The configurations to use, by type; within a type later ones win."""
    layers = (
        ("ClusterManagementAddOn default", default_configs(cluster_addon)),
        (
            f"install strategy of placement {strategy.key}" if strategy else "",
            strategy.configs if strategy else [],
        ),
        (
            "ManagedClusterAddOn",
            supported(cluster_addon, addon, addon.spec.configs) if addon else [],
        ),
    )
    chosen: dict[ConfigType, dict[ConfigReferent, ChosenConfig]] = {}
    for source, configs in layers:
        layer: dict[ConfigType, dict[ConfigReferent, ChosenConfig]] = {}
        for each in configs:
            made = ChosenConfig(each.type, each.referent, source)
            layer.setdefault(each.type, {}).setdefault(each.referent, made)
        chosen.update(layer)
    by_type = sorted(chosen, key=lambda type_: (type_.group, type_.resource))
    return [each for type_ in by_type for each in chosen[type_].values()]


def default_configs(cluster_addon: ClusterManagementAddOn) -> list[AddOnConfig]:
    """The default configurations."""
    return [
        AddOnConfig(
            group=each.group,
            resource=each.resource,
            name=each.default_config.name,
            namespace=each.default_config.namespace,
        )
        for each in cluster_addon.spec.supported_configs
        if each.default_config is not None
    ]


def supported_types(
    cluster_addon: ClusterManagementAddOn, addon: ManagedClusterAddOn
) -> set[ConfigType]:
    """The types of configurations that an add-on understands."""
    written = {
        ConfigType(group=each.group, resource=each.resource)
        for each in cluster_addon.spec.supported_configs
    }
    reported = {
        ConfigType(group=each.group, resource=each.resource)
        for each in addon.status.supported_configs
    }
    return {*written, *reported, *(BUILT_IN if TEMPLATE in written else ())}


def supported(
    cluster_addon: ClusterManagementAddOn,
    addon: ManagedClusterAddOn,
    configs: Sequence[AddOnConfig],
) -> list[AddOnConfig]:
    """Those configurations that the add-on understands."""
    known = supported_types(cluster_addon, addon)
    return [each for each in configs if each.type in known]


def unsupported(
    cluster_addon: ClusterManagementAddOn, addon: ManagedClusterAddOn
) -> list[AddOnConfig]:
    """Configurations of the ManagedClusterAddOn that the add-on does not understand."""
    known = supported_types(cluster_addon, addon)
    return [each for each in addon.spec.configs if each.type not in known]


def wanted_references(
    chosen: Sequence[ChosenConfig], hashes: Hashes, known: Sequence[ConfigReference]
) -> list[ConfigReference]:
    """What `status.configReferences` is to be, with what is known about applied configurations.

    A hash that we cannot compute is taken from what is known: the manager of an add-on knows the
    configurations of its own kinds.
    """
    by_key = {
        (each.type, each.desired_config.referent): each
        for each in known
        if each.desired_config is not None
    }
    return [wanted_reference(each, hashes, by_key) for each in chosen]


def wanted_reference(
    chosen: ChosenConfig,
    hashes: Hashes,
    known: dict[tuple[ConfigType, ConfigReferent], ConfigReference],
) -> ConfigReference:
    """One entry of `status.configReferences`."""
    old = known.get((chosen.type, chosen.referent))
    found = hashes(chosen.type, chosen.referent)
    if not found and old is not None and old.desired_config is not None:
        found = "" if chosen.type in BUILT_IN else old.desired_config.spec_hash
    return ConfigReference(
        group=chosen.type.group,
        resource=chosen.type.resource,
        name=chosen.referent.name,
        namespace=chosen.referent.namespace,
        last_observed_generation=old.last_observed_generation if old else 0,
        desired_config=ConfigSpecHash(
            name=chosen.referent.name, namespace=chosen.referent.namespace, spec_hash=found
        ),
        last_applied_config=old.last_applied_config if old else None,
    )


def missing(references: Sequence[ConfigReference]) -> list[ConfigReference]:
    """Configurations without a hash: they do not exist, or nobody has looked at them yet."""
    return [
        each
        for each in references
        if each.desired_config is None or not each.desired_config.spec_hash
    ]


def desired(references: Sequence[ConfigReference]) -> list[tuple[ConfigType, ConfigSpecHash]]:
    """What the references ask for, without how far it has come."""
    return [(each.type, each.desired_config) for each in references if each.desired_config]


def is_applied(references: Sequence[ConfigReference]) -> bool:
    """Whether everything that is asked for has been applied."""
    return all(each.last_applied_config == each.desired_config for each in references)
