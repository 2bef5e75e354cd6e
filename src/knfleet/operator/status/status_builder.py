"""What a custom resource's status says, step by step through a pass.

It starts from the last status; every step of a pass sets its conditions, and the others stay. The
words are upstream's, so that what waits for them or searches them still finds them.
"""

from datetime import datetime

import msgspec
from msgspec.structs import replace

from knfleet.api.knative import conditions
from knfleet.api.knative.conditions import (
    DEPENDENCIES_INSTALLED,
    DEPLOYMENTS_AVAILABLE,
    INSTALL_SUCCEEDED,
    PAUSED,
    TARGET_CLUSTER_RESOLVED,
    VERSION_MIGRATION_ELIGIBLE,
    Condition,
)
from knfleet.api.knative.resources import KnativeStatus
from knfleet.api.knative.verification import VERIFIED_CONDITION, VerifyAnswer
from knfleet.api.meta import Object
from knfleet.operator.status.messages import ALL_APPLIED, INSTALL_FAILED, UNINSTALL_FAILED

INSTALLING, NOT_READY = ON_THEIR_WAY = ("Installing", "NotReady")
"""Reasons of conditions whose messages change often before they are True."""


class StatusBuilder:
    """A status in the making."""

    def __init__(self, status: KnativeStatus, generation: int, now: datetime) -> None:
        self.now = now
        self.status = replace(
            status,
            observed_generation=generation,
            conditions=conditions.initialize(status.conditions, now),
        )

    def eligible(self) -> None:
        """The installed version may become the wanted one."""
        self.true(VERSION_MIGRATION_ELIGIBLE)

    def not_eligible(self, problem: str) -> None:
        """The installed version must not become the wanted one."""
        message = f"Version migration is not eligible with message: {problem}"
        self.false(VERSION_MIGRATION_ELIGIBLE, "Error", message)

    def resolved(self) -> None:
        """The target can be used."""
        self.true(TARGET_CLUSTER_RESOLVED)

    def not_resolved(self, reason: str, message: str) -> None:
        """The target cannot be used."""
        self.false(TARGET_CLUSTER_RESOLVED, reason, message)

    def refused(self, message: str) -> None:
        """Another custom resource installs there."""
        self.false(INSTALL_SUCCEEDED, "AlreadyInstalled", message)

    def installing(self, message: str) -> None:
        """Objects are being applied, or some must wait."""
        self.unknown(INSTALL_SUCCEEDED, INSTALLING, message)

    def failed(self, problem: str) -> None:
        """Something must be fixed before this can be installed."""
        self.false(INSTALL_SUCCEEDED, "Error", f"{INSTALL_FAILED}{problem}")

    def uninstalling(self, message: str) -> None:
        """Objects are being deleted."""
        self.false(INSTALL_SUCCEEDED, "Uninstalling", message)

    def not_uninstalled(self, problem: str) -> None:
        """Something must be fixed before this can be removed."""
        self.false(INSTALL_SUCCEEDED, "Error", f"{UNINSTALL_FAILED}{problem}")

    def applied(self, paths: tuple[str, ...]) -> None:
        """Everything is applied; a failure of an earlier pass is over."""
        self.status = replace(self.status, manifests=list(paths))
        condition = self.find(INSTALL_SUCCEEDED)
        if condition is not None and condition.status == "False":
            self.unknown(INSTALL_SUCCEEDED, INSTALLING, ALL_APPLIED)

    def waiting(self, message: str) -> None:
        """Some workloads are not available yet."""
        self.false(DEPLOYMENTS_AVAILABLE, NOT_READY, message)

    def mark_unknown(self) -> None:
        """Whether the workloads are available is unknown."""
        message = "the workloads cannot be read yet; retrying"
        self.unknown(DEPLOYMENTS_AVAILABLE, "NotKnown", message)

    def available(self) -> None:
        self.true(DEPLOYMENTS_AVAILABLE)

    def succeeded(self, version: str) -> None:
        """Everything is there and works."""
        self.true(INSTALL_SUCCEEDED)
        condition = self.find(DEPENDENCIES_INSTALLED)
        if condition is None or condition.status == "Unknown":
            self.true(DEPENDENCIES_INSTALLED)
        self.status = replace(self.status, version=version)

    def paused(self, message: str) -> None:
        """Nothing is done to the target; of all else, the last known state is kept."""
        marked = Condition(
            type=PAUSED, status="True", severity="Info", reason="Paused", message=message
        )
        self.put(conditions.put(self.status.conditions, marked, self.now))

    def not_paused(self) -> None:
        """The target is looked after."""
        self.put([each for each in self.status.conditions if each.type != PAUSED])

    def verified(self, answer: VerifyAnswer) -> None:
        """What a verification found out; `Ready` does not depend on it."""
        marked = Condition(
            type=VERIFIED_CONDITION,
            status=answer.status,
            severity="Info",
            reason=answer.reason,
            message=answer.message,
        )
        self.put(conditions.put(self.status.conditions, marked, self.now))

    def find(self, type_: str) -> Condition | None:
        return conditions.find(self.status.conditions, type_)

    def true(self, type_: str) -> None:
        self.put(conditions.mark_true(self.status.conditions, type_, self.now))

    def false(self, type_: str, reason: str, message: str) -> None:
        """A condition does not hold."""
        marked = conditions.mark_false(
            self.status.conditions, type_, reason=reason, message=message, now=self.now
        )
        self.put(marked)

    def unknown(self, type_: str, reason: str, message: str) -> None:
        """Whether a condition holds is not known yet."""
        marked = conditions.mark_unknown(
            self.status.conditions, type_, reason=reason, message=message, now=self.now
        )
        self.put(marked)

    def put(self, marked: list[Condition]) -> None:
        """Take over conditions."""
        self.status = replace(self.status, conditions=marked)


def same(one: KnativeStatus, other: KnativeStatus) -> bool:
    """Whether two statuses say the same, whatever their times are."""
    bare = replace(one, conditions=[], annotations={})
    return bare == replace(other, conditions=[], annotations={}) and conditions.same(
        one.conditions, other.conditions
    )


def is_progress(before: KnativeStatus, after: KnativeStatus) -> bool:
    """Whether a status tells only in other words what is still waited for."""
    return same(without_progress_messages(before), without_progress_messages(after))


def without_progress_messages(status: KnativeStatus) -> KnativeStatus:
    """A status without the messages of conditions that are on their way."""
    known = [
        replace(each, message="") if each.reason in ON_THEIR_WAY else each
        for each in status.conditions
    ]
    return replace(status, conditions=known)


def status_of(manifest: Object) -> KnativeStatus:
    """The status that a custom resource carries; one that cannot be read counts as none."""
    try:
        return msgspec.convert(manifest.get("status") or {}, KnativeStatus)
    except msgspec.ValidationError:
        return KnativeStatus()


def patch_of(manifest: Object, status: KnativeStatus) -> Object:
    """What to apply to the status of this very object; `annotations` are others' to write."""
    meta = manifest["metadata"]
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
        "status": msgspec.to_builtins(replace(status, annotations={})),
    }
