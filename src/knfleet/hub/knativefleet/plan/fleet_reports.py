"""How far each cluster of a fleet is, in words. Pure."""

from knfleet.hub.knativefleet.plan.cluster_state import RevisionState
from knfleet.hub.knativefleet.plan.fleet_rollout import ClusterPhase, ClusterReport, ClusterView
from knfleet.hub.rollout.rollout_model import State

PHASES = {
    State.TO_APPLY: ClusterPhase.WAITING,
    State.PROGRESSING: ClusterPhase.PROGRESSING,
    State.SUCCEEDED: ClusterPhase.DONE,
    State.SKIPPED: ClusterPhase.DONE,
    State.FAILED: ClusterPhase.FAILED,
    State.TIMED_OUT: ClusterPhase.TIMED_OUT,
}


def report_of(
    cluster: ClusterView,
    state: RevisionState,
    judged: State,
    *,
    lost: str,
    is_drifted: bool,
    is_back: bool,
) -> ClusterReport:
    """How far a cluster is with the revision of the spec."""
    if state.is_invalid:
        return ClusterReport(ClusterPhase.INVALID, state.message)
    if lost and judged is not State.SUCCEEDED:
        since = [child.lost_since for child in cluster.children.values() if child.lost_since]
        return ClusterReport(ClusterPhase.UNREACHABLE, lost, min(since, default=None))
    if lost:
        return ClusterReport(ClusterPhase.UNREACHABLE, lost)
    phase = PHASES[judged]
    message = state.message
    if phase is ClusterPhase.WAITING and is_back:
        message = "has the last good revision again"
    return ClusterReport(phase, message, state.progress.since, is_drifted)
