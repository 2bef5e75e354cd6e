"""Upstream's rules of aggregation, as values."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.knative.conditions import (
    DEPENDENCIES_INSTALLED,
    DEPENDENTS,
    DEPLOYMENTS_AVAILABLE,
    INSTALL_SUCCEEDED,
    READY,
    TARGET_CLUSTER_RESOLVED,
    VERSION_MIGRATION_ELIGIBLE,
    Condition,
    find,
    initialize,
    is_true,
    mark_false,
    mark_true,
    mark_unknown,
    same,
)

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


def later(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def status(conditions: list[Condition], type_: str) -> str:
    condition = find(conditions, type_)
    return condition.status if condition else "absent"


def all_true() -> list[Condition]:
    conditions = initialize([], NOW)
    for type_ in DEPENDENTS:
        conditions = mark_true(conditions, type_, NOW)
    return conditions


def test_a_new_object_has_six_unknown_conditions_sorted_by_type():
    """Missing conditions are added as Unknown."""
    conditions = initialize([], NOW)

    assert sorted([READY, *DEPENDENTS]) == [condition.type for condition in conditions]
    assert {"Unknown"} == {condition.status for condition in conditions}
    assert {"2026-11-15T12:00:00Z"} == {c.last_transition_time for c in conditions}


def test_a_type_that_a_release_brings_does_not_make_a_ready_object_unready():
    """Missing dependents of a Ready object are created True."""
    conditions = initialize([Condition(type=READY, status="True")], NOW)

    assert {"True"} == {condition.status for condition in conditions}


def test_ready_is_true_when_all_dependents_are():
    """The happy path of a fresh install."""
    conditions = initialize([], NOW)
    for type_ in DEPENDENTS[:-1]:
        conditions = mark_true(conditions, type_, NOW)
        assert not is_true(conditions, READY)
    conditions = mark_true(conditions, DEPENDENTS[-1], NOW)

    assert Condition(
        type=READY, status="True", last_transition_time="2026-11-15T12:00:00Z"
    ) == find(conditions, READY)


def test_a_false_condition_makes_ready_false_with_its_reason_and_message():
    """Whatever else is wrong, the newest failure is shown."""
    conditions = mark_false(
        all_true(), INSTALL_SUCCEEDED, reason="Error", message="100 %s", now=later(1)
    )

    ready = find(conditions, READY)
    assert ready is not None
    assert (ready.status, ready.reason, ready.message) == ("False", "Error", "100 %s")
    assert is_true(conditions, DEPLOYMENTS_AVAILABLE)


def test_ready_falls_back_to_the_newest_of_the_remaining_failures():
    """A repaired condition uncovers the failure that came before it."""
    conditions = all_true()
    for second, type_ in enumerate(
        (DEPENDENCIES_INSTALLED, TARGET_CLUSTER_RESOLVED, DEPLOYMENTS_AVAILABLE), start=1
    ):
        conditions = mark_false(conditions, type_, reason=type_, message="m", now=later(second))

    conditions = mark_true(conditions, DEPLOYMENTS_AVAILABLE, later(9))

    ready = find(conditions, READY)
    assert ready is not None
    assert (ready.status, ready.reason) == ("False", TARGET_CLUSTER_RESOLVED)


def test_a_missing_dependent_keeps_ready_unknown():
    """Fewer dependents than expected is not health."""
    conditions = mark_true([], INSTALL_SUCCEEDED, NOW)

    assert Condition(
        type=READY, status="Unknown", last_transition_time="2026-11-15T12:00:00Z"
    ) == find(conditions, READY)


def test_target_resolution_never_touches_install_succeeded():
    """Losing the target says nothing about what is installed."""
    for before in (initialize([], NOW), all_true()):
        was = find(before, INSTALL_SUCCEEDED)

        lost = mark_false(before, TARGET_CLUSTER_RESOLVED, reason="X", message="", now=later(1))
        found = mark_true(lost, TARGET_CLUSTER_RESOLVED, later(2))

        assert was == find(lost, INSTALL_SUCCEEDED) == find(found, INSTALL_SUCCEEDED)


def test_a_missing_dependency_outlives_a_successful_install():
    """InstallSucceeded True does not hide DependenciesInstalled False."""
    conditions = mark_false(
        all_true(), DEPENDENCIES_INSTALLED, reason="Error", message="gone", now=later(1)
    )
    conditions = mark_true(conditions, INSTALL_SUCCEEDED, later(2))

    assert "False" == status(conditions, DEPENDENCIES_INSTALLED) == status(conditions, READY)


def test_an_unknown_condition_makes_ready_unknown_unless_something_failed():
    """False is stronger than Unknown."""
    unknown = mark_unknown(
        all_true(), TARGET_CLUSTER_RESOLVED, reason="Probing", message="", now=later(1)
    )
    failed = mark_false(all_true(), INSTALL_SUCCEEDED, reason="E", message="", now=later(1))
    both = mark_unknown(failed, TARGET_CLUSTER_RESOLVED, reason="P", message="", now=later(2))

    assert status(unknown, READY) == "Unknown"
    assert status(both, READY) == "False"


def test_saying_the_same_again_changes_no_time():
    """A pass that finds nothing new writes nothing."""
    once = mark_false(all_true(), INSTALL_SUCCEEDED, reason="E", message="m", now=later(1))

    again = mark_false(once, INSTALL_SUCCEEDED, reason="E", message="m", now=later(5))
    other = mark_false(once, INSTALL_SUCCEEDED, reason="E", message="n", now=later(5))

    assert once == again
    assert same(once, again)
    changed = find(other, INSTALL_SUCCEEDED)
    assert changed is not None
    assert changed.last_transition_time == "2026-11-15T12:00:05Z"
    assert not same(once, other)


def test_empty_reason_and_message_are_not_written():
    """The stored form is upstream's."""
    [condition] = mark_true([], VERSION_MIGRATION_ELIGIBLE, NOW)[1:]

    assert msgspec.to_builtins(condition) == {
        "type": VERSION_MIGRATION_ELIGIBLE,
        "status": "True",
        "lastTransitionTime": "2026-11-15T12:00:00Z",
    }


@given(
    st.lists(
        st.tuples(st.sampled_from(DEPENDENTS), st.sampled_from(["True", "False", "Unknown"])),
        max_size=12,
    )
)
def test_ready_is_true_exactly_when_every_dependent_is(marks: list[tuple[str, str]]):
    """No order of marks leaves Ready wrong about True."""
    conditions = initialize([], NOW)
    for second, (type_, to) in enumerate(marks):
        if to == "True":
            conditions = mark_true(conditions, type_, later(second))
        elif to == "False":
            conditions = mark_false(conditions, type_, reason="r", message="m", now=later(second))
        else:
            conditions = mark_unknown(conditions, type_, reason="r", message="m", now=later(second))

    assert is_true(conditions, READY) == all(is_true(conditions, type_) for type_ in DEPENDENTS)
    assert (status(conditions, READY) == "False") == any(
        status(conditions, type_) == "False" for type_ in DEPENDENTS
    )
    assert sorted(c.type for c in conditions) == [c.type for c in conditions]
