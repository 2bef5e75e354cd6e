"""What an application did to a cluster, as a value: status, events, logs and tests all read it."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from knfleet.apply.refs import Ref


class Action(StrEnum):
    """What became of one object."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    RECREATED = "recreated"
    DELETED = "deleted"
    RELEASED = "released"
    """It stays, and is no longer a member of the set."""


class FailureKind(StrEnum):
    """Kinds of failure that are distinguished, because different people fix them."""

    FORBIDDEN = "Forbidden"
    ESCALATION = "RbacEscalation"
    QUOTA = "QuotaExceeded"
    TERMINATING = "NamespaceTerminating"
    NO_NAMESPACE = "NamespaceMissing"
    DENIED = "DeniedByAdmission"
    WEBHOOK = "WebhookUnreachable"
    IMMUTABLE = "ImmutableField"
    INVALID = "Invalid"
    UNKNOWN_KIND = "UnknownKind"
    NOT_ESTABLISHED = "CRDNotEstablished"
    OTHER_SET = "BelongsToAnotherSet"
    CONFLICT = "Conflict"
    UNANSWERED = "Unanswered"
    OTHER = "Other"


class MissingRight(Struct, frozen=True, order=True):
    """A right that is missing; without a namespace, at the scope of the cluster."""

    resource: str
    group: str
    verb: str
    namespace: str = ""

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {name}" + (f" in {self.namespace}" if self.namespace else "")


class ObjectResult(Struct, frozen=True):
    """One object that is as it should be now, and what it took."""

    ref: Ref
    action: Action
    taken_from: tuple[str, ...] = ()
    """Field managers that owned some of our fields, which were taken by force."""
    fields: tuple[str, ...] = ()
    """Fields that had been changed by others since we applied them."""
    adopted: bool = False
    """Whether it was the Go operator's until now."""
    copied: bool = False
    """Whether another client made it, with our label on it, and so keeps it."""


class ObjectFailure(Struct, frozen=True):
    """One object that is not as it should be, and why."""

    ref: Ref
    why: FailureKind
    message: str
    """The server's reason, as a sentence without the object's name."""
    verb: str = "apply"
    denials: tuple[MissingRight, ...] = ()
    """The rights that are missing, when that is why."""

    def __str__(self) -> str:
        return f"{self.ref}: {self.message}"


class ObjectPending(Struct, frozen=True):
    """One object that must wait, and what for."""

    ref: Ref
    message: str

    def __str__(self) -> str:
        return f"{self.ref}: {self.message}"


Outcome = ObjectResult | ObjectFailure | ObjectPending


class ChangeSet(Struct, frozen=True):
    """What became of all objects of a set."""

    changes: tuple[ObjectResult, ...] = ()
    failures: tuple[ObjectFailure, ...] = ()
    pending: tuple[ObjectPending, ...] = ()

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "ChangeSet":
        """A change set, in the order of names."""
        changes: list[ObjectResult] = []
        failures: list[ObjectFailure] = []
        pending: list[ObjectPending] = []
        for outcome in sorted(outcomes, key=lambda each: each.ref):
            match outcome:
                case ObjectResult():
                    changes.append(outcome)
                case ObjectFailure():
                    failures.append(outcome)
                case ObjectPending():
                    pending.append(outcome)
        return cls(tuple(changes), tuple(failures), tuple(pending))

    def __add__(self, other: "ChangeSet") -> "ChangeSet":
        return ChangeSet(
            self.changes + other.changes,
            self.failures + other.failures,
            self.pending + other.pending,
        )

    def by(self, *actions: Action) -> list[Ref]:
        """The objects to which one of some things happened."""
        return [change.ref for change in self.changes if change.action in actions]

    @property
    def created(self) -> list[Ref]:
        """Objects that were not there."""
        return self.by(Action.CREATED)

    @property
    def configured(self) -> list[Ref]:
        """Objects that were there, and were changed."""
        return self.by(Action.CONFIGURED)

    @property
    def unchanged(self) -> list[Ref]:
        """Objects that were as they should be."""
        return self.by(Action.UNCHANGED)

    @property
    def recreated(self) -> list[Ref]:
        """Objects that were replaced, because they cannot be changed."""
        return self.by(Action.RECREATED)

    @property
    def deleted(self) -> list[Ref]:
        """Objects that are gone."""
        return self.by(Action.DELETED)

    @property
    def settled(self) -> bool:
        """Whether everything is as it should be."""
        return not self.failures and not self.pending

    @property
    def wrote(self) -> bool:
        """Whether anything was changed in the cluster."""
        return any(change.action != Action.UNCHANGED for change in self.changes)

    @property
    def denials(self) -> list[MissingRight]:
        """The rights that are missing, each once."""
        return sorted({denial for each in self.failures for denial in each.denials})

    def __str__(self) -> str:
        counts: Counter[str] = Counter(change.action.value for change in self.changes)
        counts["failed"], counts["pending"] = len(self.failures), len(self.pending)
        parts = [f"{counts[name]} {name}" for name in (*Action, "failed", "pending")]
        return ", ".join(part for part in parts if not part.startswith("0 ")) or "nothing to do"
