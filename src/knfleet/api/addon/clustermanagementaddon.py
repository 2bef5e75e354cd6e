"""ClusterManagementAddOn: an add-on of the fleet, its default configurations, and its rollout."""

from typing import Annotated, ClassVar, Literal

from msgspec import Struct, field

from knfleet.api.addon.addon_configuration import (
    AddOnConfig,
    AddOnCoordinates,
    AddOnMeta,
    ConfigReferent,
    ConfigSpecHash,
    ConfigType,
    map_by,
)
from knfleet.api.addon.names import BETA, GROUP, LIFECYCLE, LIFECYCLE_SELF, STORED
from knfleet.api.cluster.rollout import RolloutStrategy
from knfleet.api.conditions import BY_TYPE, StandardCondition
from knfleet.api.meta import Key, Resource
from knfleet.api.schema import ObjectMeta, doc

CLUSTER_ADDONS = Resource(
    GROUP, STORED, "ClusterManagementAddOn", "clustermanagementaddons", namespaced=False
)
CLUSTER_ADDONS_BETA = Resource(
    GROUP, BETA, "ClusterManagementAddOn", "clustermanagementaddons", namespaced=False
)


class PlacementStrategy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Clusters of a Placement, and what is particular about the add-on there."""

    namespace: Annotated[str, doc("Namespace of the Placement.", minLength=1)]
    name: Annotated[str, doc("Name of the Placement.", minLength=1)]
    configs: Annotated[
        list[AddOnConfig],
        doc("Configurations that replace the default ones of the same type on these clusters."),
    ] = []
    rollout_strategy: Annotated[
        RolloutStrategy,
        doc(
            "How changes of configurations reach the clusters.",
            **{"x-default": {"type": "All"}},
        ),
    ] = RolloutStrategy()

    @property
    def key(self) -> Key:
        """The Placement."""
        return Key(self.namespace, self.name)


class InstallStrategy(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """On which clusters the add-on is installed by itself."""

    type: Annotated[
        Literal["Manual", "Placements"],
        doc("Manual installs nothing; Placements installs on the clusters of all placements."),
    ] = "Manual"
    placements: Annotated[
        list[PlacementStrategy],
        doc("With Placements: which clusters.", **map_by("namespace", "name")),
    ] = []


INSTALL_STRATEGY = doc(
    "Where the add-on is installed by itself.", **{"x-default": {"type": "Manual"}}
)


class SupportedConfig(ConfigType, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A type of configuration that the add-on understands."""

    default_config: Annotated[
        ConfigReferent | None, doc("The configuration that is used when nothing overrides it.")
    ] = None


class DefaultConfigReference(
    ConfigType, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """A default configuration as it is now."""

    desired_config: Annotated[ConfigSpecHash | None, doc("Its name and hash.")] = None


class InstallConfigReference(
    ConfigType, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """How far a configuration of an install strategy has come."""

    desired_config: Annotated[ConfigSpecHash | None, doc("What is being rolled out.")] = None
    last_applied_config: Annotated[
        ConfigSpecHash | None, doc("What all clusters of the Placement last had.")
    ] = None
    last_known_good_config: Annotated[
        ConfigSpecHash | None,
        doc("What all clusters of the Placement last had with the add-on available."),
    ] = None


class InstallProgression(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How far the rollout has come on the clusters of a Placement."""

    namespace: Annotated[str, doc("Namespace of the Placement.", minLength=1)]
    name: Annotated[str, doc("Name of the Placement.", minLength=1)]
    config_references: Annotated[
        list[InstallConfigReference], doc("By configuration of the install strategy.")
    ] = []
    conditions: Annotated[
        list[StandardCondition], doc("Conditions, keyed by type.", **BY_TYPE)
    ] = []

    @property
    def key(self) -> Key:
        """The Placement."""
        return Key(self.namespace, self.name)


class ClusterManagementAddOnSpec(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """What an add-on is, how it is configured, and where it is installed."""

    add_on_meta: Annotated[AddOnMeta, doc("What it is, for people.")] = AddOnMeta()
    add_on_configuration: Annotated[
        AddOnCoordinates | None, doc("Deprecated: use supportedConfigs.")
    ] = None
    supported_configs: Annotated[
        list[SupportedConfig],
        doc("Types of configurations that the add-on understands.", **map_by("group", "resource")),
    ] = []
    install_strategy: Annotated[InstallStrategy, INSTALL_STRATEGY] = InstallStrategy()


class ClusterManagementAddOnStatus(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """How far the configurations of an add-on have come."""

    default_config_references: Annotated[
        list[DefaultConfigReference], doc("The default configurations as they are now.")
    ] = field(default=[], name="defaultconfigReferences")
    install_progressions: Annotated[
        list[InstallProgression], doc("Progress, by Placement of the install strategy.")
    ] = []


class ClusterManagementAddOn(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An add-on of the fleet."""

    resource: ClassVar[Resource] = CLUSTER_ADDONS

    spec: Annotated[ClusterManagementAddOnSpec, doc("What it is.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[ClusterManagementAddOnStatus, doc("How far it has come.")] = (
        ClusterManagementAddOnStatus()
    )

    @property
    def name(self) -> str:
        """The name of the add-on."""
        return self.metadata.name

    @property
    def manages_itself(self) -> bool:
        """Whether the add-on's own manager installs and configures it."""
        return self.metadata.annotations.get(LIFECYCLE) == LIFECYCLE_SELF


class ClusterManagementAddOnSpecBeta(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """What an add-on is, how it is configured, and where it is installed."""

    add_on_meta: Annotated[AddOnMeta, doc("What it is, for people.")] = AddOnMeta()
    default_configs: Annotated[
        list[AddOnConfig],
        doc(
            "Configurations that are used when nothing overrides them; their types are those"
            " that the add-on understands.",
            **map_by("group", "resource"),
        ),
    ] = []
    install_strategy: Annotated[InstallStrategy, INSTALL_STRATEGY] = InstallStrategy()


class ClusterManagementAddOnStatusBeta(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """How far the configurations of an add-on have come."""

    default_config_references: Annotated[
        list[DefaultConfigReference], doc("The default configurations as they are now.")
    ] = []
    install_progressions: Annotated[
        list[InstallProgression], doc("Progress, by Placement of the install strategy.")
    ] = []


class ClusterManagementAddOnBeta(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """An add-on of the fleet."""

    resource: ClassVar[Resource] = CLUSTER_ADDONS_BETA

    spec: Annotated[ClusterManagementAddOnSpecBeta, doc("What it is.")]
    metadata: ObjectMeta = ObjectMeta()
    status: Annotated[ClusterManagementAddOnStatusBeta, doc("How far it has come.")] = (
        ClusterManagementAddOnStatusBeta()
    )
