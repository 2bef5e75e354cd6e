"""Whether an add-on is available, by the Lease that its agent renews. Pure."""

from datetime import datetime, timedelta

from knfleet.api.addon.names import AVAILABLE
from knfleet.api.conditions import StandardCondition
from knfleet.api.meta import Object
from knfleet.api.moments import as_moment

LEASE_SECONDS = 60
GRACE_FACTOR = 5
"""A Lease that is older than so many durations is stale."""


def lease_condition(addon: str, lease: Object | None, now: datetime) -> StandardCondition:
    """What a Lease says about an add-on."""
    renewed = renew_time(lease)
    if renewed is None:
        return StandardCondition(
            type=AVAILABLE,
            status="Unknown",
            reason="ManagedClusterAddOnLeaseNotFound",
            message=f"The status of {addon} add-on is unknown: there is no Lease {addon} in its"
            " namespace, or it was never renewed.",
        )
    if now - renewed > timedelta(seconds=GRACE_FACTOR * LEASE_SECONDS):
        return StandardCondition(
            type=AVAILABLE,
            status="False",
            reason="ManagedClusterAddOnLeaseUpdateStopped",
            message=f"{addon} add-on is not available: its Lease was last renewed"
            f" {renewed:%Y-%m-%d %H:%M:%S UTC}.",
        )
    return StandardCondition(
        type=AVAILABLE,
        status="True",
        reason="ManagedClusterAddOnLeaseUpdated",
        message=f"{addon} add-on is available.",
    )


def renew_time(lease: Object | None) -> datetime | None:
    """When a Lease was last renewed."""
    spec: Object = (lease or {}).get("spec") or {}
    return as_moment(spec.get("renewTime") or "")
