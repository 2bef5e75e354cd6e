"""One set of objects as several ManifestWorks, when it is larger than one may be. Pure.

An object stays in the work in which it is already: one that moved would be deleted by the one work
and made by the other, in no defined order.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from knfleet.api.cluster.managedcluster import CLEANUP_PRIORITY
from knfleet.api.meta import Object
from knfleet.apply.refs import CRD, NAMESPACE, Ref
from knfleet.hub.work.work_validation import SIZE_LIMIT, manifest_size
from knfleet.workflows.work.work_files import WorkFileError

WORK_SET = "knfleet.dev/work-set"
"""Annotation of works that one set of objects was split into: the name of the first."""
FIRST = frozenset({CRD, NAMESPACE})
"""What others need, so that it is delivered first."""
LATEST_PRIORITY = 100


class WorkPart(Struct, frozen=True):
    """One of the works that a set of objects becomes."""

    name: str
    number: int
    manifests: list[Object]
    annotations: dict[str, str] = {}


def part_name(name: str, number: int) -> str:
    """The name of a part; the first one is called like the set."""
    return name if number == 1 else f"{name}-{number}"


def part_number(name: str, part: str) -> int:
    """The number of a part, by its name; 0 when it is no part of the set."""
    if part == name:
        return 1
    number = part.removeprefix(f"{name}-") if part.startswith(f"{name}-") else ""
    is_number = number.isascii() and number.isdecimal() and not number.startswith("0")
    return int(number) if is_number and int(number) > 1 else 0


def split(
    name: str,
    manifests: Sequence[Object],
    current: Mapping[Ref, int] | None = None,
    *,
    limit: int = SIZE_LIMIT,
) -> list[WorkPart]:
    """The works that hold all objects: one while it is large enough, CRDs and Namespaces first.

    `current` says in which part an object is already. Raises `WorkFileError` when one object alone
    is too large.
    """
    sizes = [manifest_size(each) for each in manifests]
    for manifest, size in zip(manifests, sizes, strict=True):
        if size > limit:
            raise WorkFileError(
                f"{Ref.of(manifest)} has {size} bytes; a ManifestWork takes at most {limit}, and an"
                " object cannot be split; make it smaller, or deliver it in another way"
            )
    known = current or {}
    if sum(sizes) <= limit and set(known.values()) <= {1}:
        return [WorkPart(name, 1, list(manifests))]
    order = sorted(range(len(manifests)), key=lambda index: rank(manifests[index]))
    numbers = placed(manifests, sizes, order, known, limit)
    if 1 not in numbers.values():
        lowest = min(numbers.values())
        numbers = {index: 1 if part == lowest else part for index, part in numbers.items()}
    return [
        WorkPart(
            part_name(name, number),
            number,
            [manifests[index] for index in order if numbers[index] == number],
            {
                WORK_SET: name,
                # What others need goes last when the cluster leaves.
                CLEANUP_PRIORITY: str(max(0, LATEST_PRIORITY + 1 - number)),
            },
        )
        for number in sorted(set(numbers.values()))
    ]


def rank(manifest: Object) -> int:
    """Which objects come first."""
    return 0 if Ref.of(manifest).group_kind in FIRST else 1


def placed(
    manifests: Sequence[Object],
    sizes: Sequence[int],
    order: Sequence[int],
    current: Mapping[Ref, int],
    limit: int,
) -> dict[int, int]:
    """The part of each object: where it is, if it fits there, else the first with space."""
    free: dict[int, int] = {}
    numbers: dict[int, int] = {}

    def put(index: int, number: int) -> bool:
        if free.setdefault(number, limit) < sizes[index]:
            return False
        free[number] -= sizes[index]
        numbers[index] = number
        return True

    homeless = [
        index
        for index in order
        if not (number := current.get(Ref.of(manifests[index]))) or not put(index, number)
    ]
    for index in homeless:
        number = 1
        while not put(index, number):
            number += 1
    return numbers
