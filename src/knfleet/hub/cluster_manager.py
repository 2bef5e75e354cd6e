"""How the hub is set up, read live from its ClusterManager, and what it says of itself there."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from knfleet.api.conditions import StandardCondition
from knfleet.api.knative.conditions import Status
from knfleet.api.meta import Key, Object
from knfleet.api.operator import (
    APPLIED,
    AVAILABLE,
    CLEANUP_GATE,
    CLUSTER_MANAGER,
    COMPLETED_WORKS_GATE,
    DEFAULT_SET_GATE,
    HUB_PLACEMENT_DEGRADED,
    HUB_REGISTRATION_DEGRADED,
    PROGRESSING,
    ClusterManager,
    Generation,
    InstallationStatus,
    RelatedResource,
    is_enabled,
)
from knfleet.api.schema import decode
from knfleet.hub.informers import HubInformers

DRIVERS = ("csr",)
"""The ways of registration that this hub has."""


class HubConfiguration(Struct, frozen=True):
    """The settings of the hub."""

    informers: HubInformers
    auto_approved_users: frozenset[str] = frozenset()
    """Those that the command line names."""

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

    @property
    def deletes_completed_works(self) -> bool:
        """Whether works are deleted when their time to live is over."""
        gates = self.manager.spec.work_configuration.feature_gates
        return is_enabled(gates, COMPLETED_WORKS_GATE, default=True)

    def is_enabled(self, feature: str, *, default: bool) -> bool:
        """Whether a feature of registration is on."""
        gates = self.manager.spec.registration_configuration.feature_gates
        return is_enabled(gates, feature, default=default)


def conditions(manager: ClusterManager, problem: str) -> list[StandardCondition]:
    """What the hub says of itself; `problem` is what is wrong with its watches, if anything is."""
    drivers = {
        each.auth_type for each in manager.spec.registration_configuration.registration_drivers
    }
    missing = sorted(drivers.difference(DRIVERS))
    lacking = f"registration by {', '.join(missing)} is not part of this release" if missing else ""
    trouble = problem or lacking
    generation = manager.metadata.generation

    def said(type_: str, status: Status, reason: str, message: str) -> StandardCondition:
        return StandardCondition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            observed_generation=generation,
        )

    return [
        said(APPLIED, "True", "ClusterManagerApplied", "Everything that the hub needs is there."),
        said(
            AVAILABLE,
            "False" if problem else "True",
            "HubUnavailable" if problem else "HubAvailable",
            problem or "The hub's controllers run.",
        ),
        said(PROGRESSING, "False", "ClusterManagerUpToDate", "Nothing is being changed."),
        said(
            HUB_REGISTRATION_DEGRADED,
            "True" if trouble else "False",
            "RegistrationDegraded" if trouble else "RegistrationFunctional",
            trouble or "Clusters can register.",
        ),
        said(
            HUB_PLACEMENT_DEGRADED,
            "Unknown",
            "PlacementNotServed",
            "Placement is not part of this release.",
        ),
    ]


def generations(deployment: Object | None) -> list[Generation]:
    """Which state of the hub's Deployment is there; nothing when the hub runs elsewhere."""
    if deployment is None:
        return []
    meta = deployment["metadata"]
    return [
        Generation(
            group="apps",
            version="v1",
            resource="deployments",
            name=meta["name"],
            namespace=meta["namespace"],
            last_generation=meta["generation"],
        )
    ]


def status_patch(
    manager: ClusterManager,
    said: list[StandardCondition],
    deployment: Object | None,
    related: Sequence[RelatedResource] = (),
) -> Object:
    """The patch that makes a ClusterManager say how the hub stands; empty when it does."""
    wanted = InstallationStatus(
        observed_generation=manager.metadata.generation,
        conditions=said,
        generations=generations(deployment),
        related_resources=list(related),
    )
    if wanted == manager.status:
        return {}
    return {
        "metadata": {"resourceVersion": manager.metadata.resource_version},
        "status": {"generations": [], **msgspec.to_builtins(wanted)},
    }
