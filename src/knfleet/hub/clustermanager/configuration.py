"""The configuration of the hub, read from its ClusterManager whenever it is asked for."""

from msgspec import Struct

from knfleet.api.meta import Key
from knfleet.api.operator import (
    CLEANUP_GATE,
    CLUSTER_MANAGER,
    DEFAULT_SET_GATE,
    ClusterManager,
    RelatedResource,
    is_enabled,
)
from knfleet.api.schema import decode
from knfleet.hub.informers import HubInformers


class HubConfiguration(Struct, frozen=True):
    """The settings of the hub."""

    informers: HubInformers
    auto_approved_users: frozenset[str] = frozenset()
    """Those that the command line names."""
    related_resources: tuple[RelatedResource, ...] = ()
    """What belongs to the hub on its cluster, for the status of its ClusterManager."""

    @property
    def manager(self) -> ClusterManager:
        """The ClusterManager; an empty one when there is none."""
        found = self.informers.managers.get(Key("", CLUSTER_MANAGER))
        return ClusterManager() if found is None else decode(found, ClusterManager)

    @property
    def auto_approved(self) -> frozenset[str]:
        """The users whose first certificate requests need no person."""
        return self.auto_approved_users | self.manager.auto_approved

    @property
    def cleans_up(self) -> bool:
        """Whether works and add-ons are removed with their cluster."""
        return self.is_enabled(CLEANUP_GATE, default=True)

    @property
    def has_default_sets(self) -> bool:
        """Whether the sets `default` and `global` are kept."""
        return self.is_enabled(DEFAULT_SET_GATE, default=True)

    def is_enabled(self, feature: str, *, default: bool) -> bool:
        """Whether a feature of registration is on."""
        gates = self.manager.spec.registration_configuration.feature_gates
        return is_enabled(gates, feature, default=default)
