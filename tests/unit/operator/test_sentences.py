"""Sentences for conditions and Events."""

from knfleet.apply.change_set import (
    ChangeSet,
    FailureKind,
    MissingRight,
    ObjectFailure,
    ObjectPending,
)
from knfleet.apply.observe.readiness import ObjectReadiness, ReadinessState, SetReadiness
from knfleet.apply.refs import Ref
from knfleet.operator.status.messages import (
    INSTALL_FAILED,
    WorkloadCounts,
    applying_text,
    failure_text,
    is_all_sent,
    is_of_target,
    jobs,
    left_text,
    problem_in,
    read_waiting,
    waiting_text,
    workloads,
)

MAP = Ref("", "ConfigMap", "home", "a")


def deployment(name: str) -> Ref:
    """A Deployment by name."""
    return Ref("apps", "Deployment", "home", name)


def test_waiting_begins_as_upstream_and_keeps_the_order_of_the_release() -> None:
    """Names first, then numbers and reasons."""
    summary = SetReadiness(
        (
            ObjectReadiness(deployment("a"), ReadinessState.PROGRESSING, "0 of 2 available", 0, 2),
            ObjectReadiness(deployment("b"), ReadinessState.READY, "", 1, 1),
            ObjectReadiness(deployment("c"), ReadinessState.FAILED, "no progress", 1, 2),
        )
    )

    text = waiting_text(summary, [deployment("c"), deployment("b"), deployment("a")])

    assert text == (
        "Waiting on deployments: c, a; 1 of 3 ready: c 1/2 (no progress); a 0/2 (0 of 2 available)"
    )


def test_jobs_are_no_deployments() -> None:
    """They are waited for, and not counted among what must be available."""
    job = ObjectReadiness(
        Ref("batch", "Job", "home", "j"), ReadinessState.PROGRESSING, "it is not complete"
    )
    summary = SetReadiness((ObjectReadiness(deployment("a"), ReadinessState.READY), job))

    assert workloads(summary).is_ready
    assert jobs(summary).waiting == [job]


def test_every_missing_right_is_named_however_many_there_are() -> None:
    """The other failures are named too, up to a number."""
    denied = [
        ObjectFailure(
            Ref("apps", f"Kind{number}", "home", "x"),
            FailureKind.FORBIDDEN,
            "no",
            denials=tuple(
                MissingRight(f"kinds{number}", "apps", verb, "home") for verb in ("list", "get")
            ),
        )
        for number in range(20)
    ]

    text = failure_text([*denied, ObjectFailure(MAP, FailureKind.QUOTA, "exceeded quota")])

    for number in range(20):
        assert f"get, list kinds{number}.apps in home" in text
    assert text.endswith("ConfigMap home/a: exceeded quota (QuotaExceeded)")


def test_the_same_words_about_many_objects_are_said_once() -> None:
    """Twenty objects in a namespace that goes away are one problem."""
    failures = [
        ObjectFailure(
            Ref("", "ConfigMap", "home", f"m{number:02}"), FailureKind.TERMINATING, "it goes"
        )
        for number in range(20)
    ]

    text = failure_text(failures)

    assert text.count("it goes") == 1
    assert "and 12 more: it goes (NamespaceTerminating)" in text


def test_what_is_left_is_counted_and_named() -> None:
    """One sentence with both what failed and what waits."""
    changes = ChangeSet(
        failures=(ObjectFailure(MAP, FailureKind.CONFLICT, "it changes"),),
        pending=(ObjectPending(deployment("a"), "it is being deleted"),),
    )

    assert left_text(changes) == (
        "2 objects are left: ConfigMap home/a: it changes (Conflict); "
        "Deployment home/a: it is being deleted"
    )


def test_what_is_written_about_workloads_is_read_again() -> None:
    """The dashboard counts them, and a status has no field for counts."""
    summary = SetReadiness(
        tuple(
            ObjectReadiness(deployment(name), state)
            for name, state in (
                ("a", ReadinessState.READY),
                ("b", ReadinessState.PROGRESSING),
                ("c", ReadinessState.FAILED),
            )
        )
    )

    counts = read_waiting(waiting_text(summary, [deployment("c"), deployment("b")]))

    assert counts == WorkloadCounts(("c", "b"), 1, 3)
    assert read_waiting("all are there") is None


def test_failures_of_the_target_are_told_from_those_of_the_release() -> None:
    """They lead to another link of the chain."""
    failure = ObjectFailure(deployment("a"), FailureKind.QUOTA, "exceeded quota")

    assert is_of_target(problem_in(f"{INSTALL_FAILED}{failure_text([failure])}"))
    assert not is_of_target(problem_in(f"{INSTALL_FAILED}spec.version: there is no version 9.9"))
    assert is_all_sent(applying_text(3, "1.22.1"))
