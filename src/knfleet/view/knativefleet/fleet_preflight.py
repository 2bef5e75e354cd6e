"""What operators would refuse of a change of a fleet, as far as the hub knows. Pure."""

from collections.abc import Iterable, Mapping

from knfleet.hub.knativefleet.plan.fleet_clusters import Member
from knfleet.kube import supported_versions


def too_old(clusters: Iterable[str], members: Mapping[str, Member]) -> list[str]:
    """Clusters whose Kubernetes is older than Knative needs; unknown versions are not named."""
    oldest = supported_versions.numbers(supported_versions.MINIMUM)
    assert oldest is not None
    found: list[str] = []
    for name in clusters:
        known = members[name].kubernetes if name in members else ""
        version = supported_versions.numbers(known)
        if version is not None and version < oldest:
            found.append(
                f"cluster {name}: Kubernetes {known} is older than {supported_versions.MINIMUM},"
                " the oldest that Knative supports; upgrade the cluster first, or set"
                " KUBERNETES_MIN_VERSION of the operator"
            )
    return found
