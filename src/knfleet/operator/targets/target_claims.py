"""Of several custom resources of a kind for one target, the one that may install: the first.

Who has begun stays first: the finalizer tells that, also after a restart. Among those that have
not, the oldest is first.
"""

from collections.abc import Iterable, Set

from knfleet.api.meta import Key, Object
from knfleet.operator.kinds import finalizers_of, profile_of, uid_of


def holder(
    manifest: Object, others: Iterable[Object], *, finalizer: str, claimed: Set[str]
) -> Object:
    """The custom resource that may install where this one wants to.

    `claimed` are the uids of those that this process let begin; their finalizers may not have been
    seen yet.
    """
    place = profile_of(manifest)
    rivals = [each for each in others if profile_of(each) == place and not same(each, manifest)]

    def rank(each: Object) -> tuple[bool, bool, str, Key]:
        meta = each["metadata"]
        return (
            uid_of(each) not in claimed,
            finalizer not in finalizers_of(each),
            meta.get("creationTimestamp", ""),
            Key.of(each),
        )

    return min([manifest, *rivals], key=rank)


def same(one: Object, other: Object) -> bool:
    """Whether two states are of the same object."""
    return uid_of(one) == uid_of(other)
