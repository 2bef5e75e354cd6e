"""Drift, and when it becomes a conflict."""

from knfleet.api.meta import Object
from knfleet.apply.observe.drift import ChangedField, ConflictRules, Drift, DriftConflicts, drift
from knfleet.apply.observe.metadata import observe
from knfleet.apply.plan.steps import StepContext
from knfleet.apply.refs import Ref
from tests.support.objects import SET, config_map, desired_set, live, seen

CONTEXT = StepContext(SET.id)
REF = Ref("", "ConfigMap", "home", "c")
RULES = ConflictRules(repairs=3, window_seconds=60, first_delay_seconds=5, longest_delay_seconds=20)


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def changed(field: str = "data.a", manager: str = "kubectl") -> Drift:
    """A change of one field by somebody."""
    return Drift(REF, "changed", (ChangedField(field, manager),))


def test_what_is_as_applied_is_no_drift() -> None:
    """Nor is something that others added."""
    (desired,) = desired_set(config_map("c", a="1")).objects.values()

    assert drift(desired, seen(desired.manifest), CONTEXT) is None


def test_a_change_is_told_with_field_and_manager() -> None:
    """The one who has the field now is the one who changed it."""
    (desired,) = desired_set(config_map("c", a="1", b="2")).objects.values()
    edited = live(desired.manifest)
    edited["metadata"]["managedFields"][0]["fieldsV1"]["f:data"].pop("f:a")
    theirs: Object = {"f:data": {"f:a": {}}}
    edited["metadata"]["managedFields"] += [
        {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": theirs},
        {"manager": "innocent", "operation": "Update", "fieldsV1": {"f:data": {"f:z": {}}}},
    ]

    found = drift(desired, observe(edited), CONTEXT)

    assert found == Drift(REF, "changed", (ChangedField("data.a", "kubectl-edit"),))
    assert str(found) == "ConfigMap home/c was changed: data.a by kubectl-edit"


def test_a_removed_field_and_a_deleted_object_have_no_name() -> None:
    """Nobody owns what is not there."""
    (desired,) = desired_set(config_map("c", a="1", b="2")).objects.values()
    edited = live(desired.manifest)
    edited["metadata"]["managedFields"][0]["fieldsV1"]["f:data"].pop("f:b")

    assert drift(desired, observe(edited), CONTEXT) == changed("data.b", "")
    assert drift(desired, None, CONTEXT) == Drift(REF, "deleted")


def test_a_few_repairs_are_no_conflict_and_more_are() -> None:
    """The conflict names the manager and the field, and the next repair must wait."""
    conflicts = DriftConflicts(clock := Clock(), RULES)

    first = [conflicts.note(changed()) for _ in range(3)]
    assert first == [None] * 3
    assert conflicts.wait_seconds(REF) == 0

    clock.time += 1
    conflict = conflicts.note(changed())
    assert conflict is not None
    assert (conflict.manager, conflict.field, conflict.ref) == ("kubectl", "data.a", REF)
    assert conflicts.wait_seconds(REF) == 5


def test_different_fields_and_slow_changes_are_no_conflict() -> None:
    """A person who edits is not a program that insists."""
    conflicts = DriftConflicts(clock := Clock(), RULES)

    assert all(conflicts.note(changed(f"data.{n}")) is None for n in range(10))
    for _ in range(10):
        clock.time += 30
        assert conflicts.note(changed()) is None


def test_delays_grow_to_a_limit_and_end_with_the_conflict() -> None:
    """After a whole quiet window everything is as at first."""
    conflicts = DriftConflicts(clock := Clock(), RULES)
    for _ in range(3):
        conflicts.note(changed())

    delays: list[float] = []
    for _ in range(4):
        assert conflicts.note(changed()) is not None
        delays.append(conflicts.wait_seconds(REF))
        clock.time += delays[-1]
    assert delays == [5, 10, 20, 20]

    clock.time += 60
    assert conflicts.note(changed()) is None
    assert conflicts.wait_seconds(REF) == 0


def test_an_object_that_is_deleted_again_and_again_is_fought_over_too() -> None:
    """Without a field, and without a name."""
    conflicts = DriftConflicts(Clock(), RULES)
    deleted = Drift(REF, "deleted")

    conflict = [conflicts.note(deleted) for _ in range(4)][-1]

    assert conflict is not None
    text = "another client keeps changing ConfigMap home/c: repaired 4 times so far"
    assert str(conflict) == text
