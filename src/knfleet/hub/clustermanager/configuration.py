"""The configuration of the hub, read from its ClusterManager whenever it is asked for."""

from msgspec import Struct

from knfleet.api.meta import Key
from knfleet.api.operator import (
    CLEANUP_GATE,
    CLUSTER_MANAGER,
    COMPLETED_WORKS_GATE,
    DEFAULT_SET_GATE,
    OPERATOR_NAMESPACE,
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
    namespace: str = OPERATOR_NAMESPACE
    """The hub's own, in which its certificates are kept."""
    webhook_names: tuple[str, ...] = ()
    """DNS names by which webhooks are called, beside those of their Service."""
    auto_approved_grpc_users: frozenset[str] = frozenset()
    """Users that the command line names for gRPC."""

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
    def grpc_auto_approved(self) -> frozenset[str]:
        """The same of users who ask over gRPC."""
        return self.auto_approved_grpc_users | self.manager.grpc_auto_approved

    @property
    def cleans_up(self) -> bool:
        """Whether works and add-ons are removed with their cluster."""
        return self.is_enabled(CLEANUP_GATE, default=True)

    @property
    def has_default_sets(self) -> bool:
        """Whether the sets `default` and `global` are kept."""
        return self.is_enabled(DEFAULT_SET_GATE, default=True)

    @property
    def deletes_completed_works(self) -> bool:
        """Whether works are deleted when their time to live is over."""
        gates = self.manager.spec.work_configuration.feature_gates
        return is_enabled(gates, COMPLETED_WORKS_GATE, default=True)

    def is_enabled(self, feature: str, *, default: bool) -> bool:
        """Whether a feature of registration is on."""
        gates = self.manager.spec.registration_configuration.feature_gates
        return is_enabled(gates, feature, default=default)
