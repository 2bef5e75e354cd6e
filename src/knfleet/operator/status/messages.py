"""Sentences for conditions and Events: what failed, what is missing, what is waited for.

The status of a custom resource has only messages for these values, and its schema is that of the
Knative Operator. So what programs need to know again is read here, beside where it is written.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from knfleet.apply.change_set import (
    ChangeSet,
    FailureKind,
    MissingRight,
    ObjectFailure,
    ObjectPending,
)
from knfleet.apply.observe.readiness import ObjectReadiness, ReadinessState, SetReadiness
from knfleet.apply.refs import JOB, Ref

INSTALL_FAILED = "Install failed with message: "
UNINSTALL_FAILED = "Uninstall failed with message: "
ALL_APPLIED = "everything is applied"
FROM_THE_TARGET = re.compile(
    rf"\(({'|'.join(FailureKind)})\)|the operator is not allowed to |: [A-Z]+ /apis?/"
    r"|\bleft: |^Job "
)
"""Failures that the target caused; all others come from the release or the spec."""
COUNTS = re.compile(r"Waiting on deployments: (?P<names>.*?); (?P<ready>\d+) of (?P<all>\d+) ready")
MOST_NAMED = 8
"""So many objects are named; of more, the number is given."""


def failure_text(failures: Sequence[ObjectFailure]) -> str:
    """What failed; of missing rights every single one is named."""
    parts: list[str] = []
    denials = sorted({denial for each in failures for denial in each.denials})
    if denials:
        parts.append(f"the operator is not allowed to {denials_text(denials)}")
    if denials or any(each.why == FailureKind.ESCALATION for each in failures):
        parts.append("`knfleet rights` prints what is needed, for an administrator to apply")
    rest = [each for each in failures if not each.denials]
    parts += shortened(group(rest))
    return "; ".join(parts)


def group(failures: Iterable[ObjectFailure]) -> list[str]:
    """One sentence for each thing that the server reported, with its objects."""
    by_words: defaultdict[tuple[FailureKind, str], list[Ref]] = defaultdict(list)
    for each in failures:
        by_words[each.why, each.message].append(each.ref)
    return [
        f"{', '.join(shortened(map(str, refs)))}: {message} ({why})"
        for (why, message), refs in by_words.items()
    ]


def denials_text(denials: Iterable[MissingRight]) -> str:
    """Rights as `create, patch deployments.apps in NAMESPACE`."""
    verbs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for denial in denials:
        name = f"{denial.resource}.{denial.group}" if denial.group else denial.resource
        verbs[name, denial.namespace].append(denial.verb)
    return "; ".join(
        f"{', '.join(sorted(each))} {name}" + (f" in {namespace}" if namespace else "")
        for (name, namespace), each in verbs.items()
    )


def pending_text(pending: Sequence[ObjectPending]) -> str:
    """What must wait, and for what."""
    return "; ".join(shortened(map(str, pending)))


def left_text(changes: ChangeSet) -> str:
    """What could not be removed, and why."""
    count = len(changes.failures) + len(changes.pending)
    parts = [failure_text(changes.failures)] if changes.failures else []
    if changes.pending:
        parts.append(pending_text(changes.pending))
    noun = "object is" if count == 1 else "objects are"
    return f"{count} {noun} left: {'; '.join(parts)}"


def losses_text(shortfall: str, lost: Iterable[Ref]) -> str:
    """Why manifests that are not the installed component do not replace it."""
    return (
        f"{shortfall}; with it {', '.join(shortened(map(str, lost)))} would be deleted, so nothing"
        " is changed: give the manifests of the component, or delete the custom resource"
    )


def shortened(texts: Iterable[str]) -> list[str]:
    """Some texts, and how many more there are."""
    every = list(texts)
    more = len(every) - MOST_NAMED
    return [*every[:MOST_NAMED], f"and {more} more"] if more > 1 else every


def workloads(summary: SetReadiness) -> SetReadiness:
    """How the workloads are, without Jobs."""
    return SetReadiness(tuple(each for each in summary.healths if each.ref.group_kind != JOB))


def jobs(summary: SetReadiness) -> SetReadiness:
    return SetReadiness(tuple(each for each in summary.healths if each.ref.group_kind == JOB))


def waiting_text(summary: SetReadiness, order: Iterable[Ref]) -> str:
    """Which workloads are waited for, in the order of the release, and how far they are."""
    place = {ref: index for index, ref in enumerate(order)}
    unready = [each for each in summary.healths if each.state != ReadinessState.READY]
    unready.sort(key=lambda each: place.get(each.ref, len(place)))
    names = ", ".join(each.ref.name for each in unready)
    ready = len(summary.healths) - len(unready)
    details = "; ".join(shortened(map(health_text, unready)))
    return f"Waiting on deployments: {names}; {ready} of {len(summary.healths)} ready: {details}"


def health_text(health: ObjectReadiness) -> str:
    """How one workload is, in a few words."""
    count = f" {health.ready}/{health.wanted}" if health.wanted else ""
    return f"{health.ref.name}{count}" + (f" ({health.message})" if health.message else "")


def applying_text(count: int, version: str) -> str:
    """How many objects of which release are being applied."""
    return f"applying {count} objects of {version}"


class WorkloadCounts(Struct, frozen=True):
    """How many workloads are ready, and which are waited for."""

    waiting: tuple[str, ...]
    ready: int
    total: int


def read_waiting(message: str) -> WorkloadCounts | None:
    """What `waiting_text` wrote; None when a message is another."""
    found = COUNTS.match(message)
    if found is None:
        return None
    return WorkloadCounts(tuple(found["names"].split(", ")), int(found["ready"]), int(found["all"]))


def problem_in(message: str) -> str:
    """What failed, without the words that every failure begins with."""
    return message.removeprefix(INSTALL_FAILED).removeprefix(UNINSTALL_FAILED)


def is_of_target(problem: str) -> bool:
    """Whether the target caused a failure, and neither the release nor the spec."""
    return FROM_THE_TARGET.search(problem) is not None


def is_all_sent(message: str) -> bool:
    """Whether no object must wait, as far as a condition about the installation tells."""
    return message.startswith("applying ") or message == ALL_APPLIED
