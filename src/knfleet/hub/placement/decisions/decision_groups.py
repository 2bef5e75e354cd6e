"""The decision groups of a Placement, for those who bring something to its clusters. Pure.

Decisions and the Placement are watched apart, so one may be newer than the other. As long as they
disagree on how many clusters are selected, it is not known which clusters are no longer selected.
"""

from collections.abc import Iterable

from knfleet.api.cluster.placement import GROUP_INDEX_LABEL, GROUP_NAME_LABEL
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part
from knfleet.hub.rollout.rollout_model import Group


def decided_groups(decisions: Iterable[Object]) -> tuple[Group, ...]:
    """The groups that decision objects consist of, by index; a cluster is in the first of them."""
    found: dict[tuple[int, str], list[str]] = {}
    for each in sorted(decisions, key=lambda manifest: manifest["metadata"]["name"]):
        labels = part(each["metadata"], "labels")
        index = str(labels.get(GROUP_INDEX_LABEL, ""))
        group = (int(index) if index.isdecimal() else 0, labels.get(GROUP_NAME_LABEL, ""))
        names = [one["clusterName"] for one in items(each, "status", "decisions")]
        found.setdefault(group, []).extend(name for name in names if name)
    seen: set[str] = set()
    groups: list[Group] = []
    for (index, name), clusters in sorted(found.items()):
        own = tuple(dict.fromkeys(each for each in clusters if each not in seen))
        seen.update(own)
        groups.append(Group(index, own, name))
    return tuple(groups)


def agrees(placement: Object, groups: Iterable[Group]) -> bool:
    """Whether a Placement was scheduled, and selects as many clusters as its groups have.

    A new one has no conditions: that it selects nothing does not follow from it.
    """
    status = part(placement, "status")
    count = sum(len(group.clusters) for group in groups)
    return bool(items(status, "conditions")) and (
        status.get("numberOfSelectedClusters", 0) == count
    )
