"""The status of the ClusterManager: the conditions of the hub, and its Deployment. Pure."""

from collections.abc import Sequence

import msgspec

from knfleet.api.conditions import StandardCondition
from knfleet.api.knative.conditions import Status
from knfleet.api.meta import Object
from knfleet.api.operator import (
    APPLIED,
    AVAILABLE,
    HUB_PLACEMENT_DEGRADED,
    HUB_REGISTRATION_DEGRADED,
    PROGRESSING,
    ClusterManager,
    Generation,
    InstallationStatus,
    RelatedResource,
)
from knfleet.hub.grpc.exposure import exposure, is_enabled


def conditions(
    manager: ClusterManager, problem: str, drivers: frozenset[str]
) -> list[StandardCondition]:
    """The conditions of the hub.

    `problem` is what is wrong with its watches, if anything is; `drivers` are the types of
    registration that it has.
    """
    registration = manager.spec.registration_configuration
    missing = sorted({each.auth_type for each in registration.registration_drivers} - drivers)
    lacking = f"registration by {', '.join(missing)} is not part of this release" if missing else ""
    degraded = problem or lacking or exposure_problem(manager)
    generation = manager.metadata.generation

    def condition(type_: str, status: Status, reason: str, message: str) -> StandardCondition:
        return StandardCondition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            observed_generation=generation,
        )

    return [
        condition(
            APPLIED, "True", "ClusterManagerApplied", "Everything that the hub needs is there."
        ),
        condition(
            AVAILABLE,
            "False" if problem else "True",
            "HubUnavailable" if problem else "HubAvailable",
            problem or "The hub's controllers run.",
        ),
        condition(PROGRESSING, "False", "ClusterManagerUpToDate", "Nothing is being changed."),
        condition(
            HUB_REGISTRATION_DEGRADED,
            "True" if degraded else "False",
            "RegistrationDegraded" if degraded else "RegistrationFunctional",
            degraded or "Clusters can register.",
        ),
        condition(
            HUB_PLACEMENT_DEGRADED,
            "True" if problem else "False",
            "PlacementDegraded" if problem else "PlacementFunctional",
            problem or "Clusters can be selected.",
        ),
    ]


def exposure_problem(manager: ClusterManager) -> str:
    """What is wrong with the configuration of gRPC, if clusters may register so."""
    return exposure(manager).problem if is_enabled(manager) else ""


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
    wanted: list[StandardCondition],
    deployment: Object | None,
    related: Sequence[RelatedResource] = (),
) -> Object:
    """The merge patch for the status of a ClusterManager; empty when it is current."""
    status = InstallationStatus(
        observed_generation=manager.metadata.generation,
        conditions=wanted,
        generations=generations(deployment),
        related_resources=list(related),
    )
    if status == manager.status:
        return {}
    return {
        "metadata": {"resourceVersion": manager.metadata.resource_version},
        "status": {"generations": [], **msgspec.to_builtins(status)},
    }
