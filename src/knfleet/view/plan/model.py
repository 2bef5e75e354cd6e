"""What would change, as a value: printed, saved, compared, and shown by the dashboard."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from knfleet.apply.refs import Ref
from knfleet.view.differences import FieldChange

FORMAT = "knfleet.dev/plan/v1"


class PlannedAction(StrEnum):
    """What would become of one object; those that lose something come first."""

    DELETE = "delete"
    RECREATE = "recreate"
    """Deleted and made anew, because it cannot be changed."""
    RELEASE = "release"
    """It stays, and does not belong to the installation any more."""
    CREATE = "create"
    CHANGE = "change"


ORDER = {act: number for number, act in enumerate(PlannedAction)}


class ObjectChange(Struct, frozen=True, omit_defaults=True):
    """One object that would be different."""

    act: PlannedAction
    ref: Ref
    fields: tuple[FieldChange, ...] = ()
    note: str = ""


class PlanProblem(Struct, frozen=True, omit_defaults=True):
    """Something that stands in the way."""

    message: str
    ref: Ref | None = None

    def __str__(self) -> str:
        return self.message if self.ref is None else f"{self.ref}: {self.message}"


class PlanBasis(Struct, frozen=True):
    """The world that a plan was made for."""

    custom_resource: str = ""
    """Its uid and generation; empty when it was not there."""
    desired: str = ""
    """Digest of all objects that are wanted: release files and custom resource together."""
    objects: dict[str, str] = {}
    """A stamp of each object that was looked at on the target."""


class ResourcePlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What would change for one custom resource."""

    kind: str
    namespace: str
    name: str
    target: str
    """`hub`, or namespace and name of a ClusterProfile."""
    installed: str = ""
    wanted: str = ""
    custom_resource: tuple[FieldChange, ...] = ()
    """What is different on the hub itself."""
    is_new: bool = False
    """Whether the custom resource is not there yet."""
    changes: tuple[ObjectChange, ...] = ()
    images: tuple[str, ...] = ()
    """Images that are not used there yet."""
    warnings: tuple[str, ...] = ()
    problems: tuple[PlanProblem, ...] = ()
    seal: PlanBasis = PlanBasis()

    @property
    def title(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not (self.changes or self.custom_resource or self.is_new)

    def by(self, *acts: PlannedAction) -> list[ObjectChange]:
        """The objects to which one of some things would happen."""
        return [each for each in self.changes if each.act in acts]


class FleetPlan(Struct, frozen=True):
    """What would change for some custom resources."""

    plans: tuple[ResourcePlan, ...]
    format: str = FORMAT

    @property
    def exit_code(self) -> int:
        """1 when something is in the way, 2 when something would change, else 0."""
        if any(plan.problems for plan in self.plans):
            return 1
        return 0 if all(plan.is_empty for plan in self.plans) else 2


class SavedPlan(Struct, frozen=True):
    """Plans in a file, with the custom resources that they were made for."""

    plans: tuple[ResourcePlan, ...]
    manifests: tuple[dict[str, Any], ...]
    """The custom resource of each plan, as it is to be written."""
    format: str = FORMAT


def ordered(changes: list[ObjectChange]) -> tuple[ObjectChange, ...]:
    """Changes in the order in which people should read them: deletions first."""
    return tuple(sorted(changes, key=lambda each: (ORDER[each.act], each.ref)))
