"""What the removal of a custom resource does when its target is lost: pure decisions.

wait     it waits until the target is back, however long that takes
defer    it waits for a while, an hour unless an annotation says otherwise; then as orphan
orphan   the custom resource goes at once; a tombstone has a target that returns cleaned
force    the custom resource goes, whatever is left and wherever; nothing is remembered
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum

from knfleet.api.knative.conditions import TARGET_CLUSTER_RESOLVED
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items
from knfleet.operator.kinds import annotations_of
from knfleet.operator.settings import SettingError, duration_seconds

ON_LOST_TARGET = "knfleet.dev/on-lost-target"
"""On a custom resource: which of the policies its removal follows."""
GRACE = "knfleet.dev/lost-target-grace"
"""On a custom resource: how long `defer` waits, such as 30m."""
GRACE_SECONDS = 3600.0
FORCED_ATTEMPTS = 3
"""So often a removal by force is tried on a target that answers."""


class LostPolicy(StrEnum):
    """What becomes of a custom resource whose target is lost."""

    WAIT = "wait"
    DEFER = "defer"
    ORPHAN = "orphan"
    FORCE = "force"


def policy_of(manifest: Object) -> LostPolicy:
    """What a custom resource asks for; what makes no sense counts as waiting."""
    text = annotations_of(manifest).get(ON_LOST_TARGET, LostPolicy.WAIT)
    return LostPolicy(text) if text in list(LostPolicy) else LostPolicy.WAIT


def policy_problem(manifest: Object) -> str:
    """What is wrong with what a custom resource says about lost targets; empty when nothing is."""
    annotations = annotations_of(manifest)
    policy = annotations.get(ON_LOST_TARGET, LostPolicy.WAIT)
    if policy not in list(LostPolicy):
        *first, last = LostPolicy
        return f"{ON_LOST_TARGET} is {policy!r}; it must be {', '.join(first)} or {last}"
    try:
        duration_seconds(annotations.get(GRACE, "1h"))
    except SettingError as error:
        return f"{GRACE}: {error}; an hour counts"
    return ""


def grace_of(manifest: Object) -> float:
    """How long a removal that is deferred waits."""
    try:
        return duration_seconds(annotations_of(manifest).get(GRACE, "1h"))
    except SettingError:
        return GRACE_SECONDS


def lost_since(manifest: Object) -> datetime | None:
    """Since when the status says that the target is lost, also before a restart."""
    for condition in items(manifest, "status", "conditions"):
        if condition.get("type") == TARGET_CLUSTER_RESOLVED and condition.get("status") == "False":
            return moment(str(condition.get("lastTransitionTime", "")))
    return None


def moment(text: str) -> datetime | None:
    """A time as Kubernetes writes it."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def remaining_seconds(manifest: Object, now: datetime) -> float:
    """How long a removal has to wait before its custom resource goes without the target."""
    match policy_of(manifest):
        case LostPolicy.WAIT:
            return float("inf")
        case LostPolicy.DEFER:
            since = lost_since(manifest)
            ends = (since or now) + timedelta(seconds=grace_of(manifest))
            return max(0.0, (ends - now).total_seconds())
        case LostPolicy.ORPHAN | LostPolicy.FORCE:
            return 0.0
