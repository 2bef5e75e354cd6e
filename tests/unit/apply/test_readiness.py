"""When each kind counts as ready."""

from typing import Any

import pytest

from knfleet.api.core import CONFIG_MAPS, CRDS, DAEMON_SETS, DEPLOYMENTS, JOBS, STATEFUL_SETS
from knfleet.api.meta import Object, Resource
from knfleet.apply.observe.readiness import ReadinessState, health, ready_endpoints, summarize
from knfleet.apply.refs import Ref
from tests.support.objects import config_map, deployment, manifest, namespace

ROLLED_OUT: Object = {
    "observedGeneration": 2,
    "replicas": 2,
    "updatedReplicas": 2,
    "readyReplicas": 2,
    "availableReplicas": 2,
}


def workload(resource: Resource, spec: Object, status: Object, generation: int = 2) -> Object:
    """A workload in some state."""
    made = manifest(resource, "w", spec=spec, status=status)
    made["metadata"]["generation"] = generation
    return made


def condition(kind: str, status: str = "True", **rest: str) -> Object:
    """A condition."""
    return {"type": kind, "status": status, **rest}


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        ({}, ReadinessState.READY, ""),
        ({"observedGeneration": 1}, ReadinessState.PROGRESSING, "not seen"),
        ({"updatedReplicas": 1}, ReadinessState.PROGRESSING, "1 of 2 updated"),
        ({"replicas": 3}, ReadinessState.PROGRESSING, "1 old pods remain"),
        ({"availableReplicas": 1}, ReadinessState.PROGRESSING, "1 of 2 available"),
        (
            {"conditions": [condition("Progressing", "False", reason="ProgressDeadlineExceeded")]},
            ReadinessState.FAILED,
            "no progress",
        ),
        (
            {
                "availableReplicas": 0,
                "conditions": [condition("ReplicaFailure", message="exceeded quota")],
            },
            ReadinessState.PROGRESSING,
            "exceeded quota",
        ),
    ],
)
def test_deployments(status: Object, state: ReadinessState, words: str) -> None:
    """The Available condition alone would call an old ReplicaSet ready."""
    available = condition("Available")
    given = {**ROLLED_OUT, **status}
    given["conditions"] = [available, *status.get("conditions", [])]

    found = health(workload(DEPLOYMENTS, {"replicas": 2}, given))

    assert found.state == state
    assert words in found.message
    assert found.wanted == 2


def test_a_deployment_scaled_to_nothing_is_ready() -> None:
    """Some components are switched off that way."""
    assert (
        health(workload(DEPLOYMENTS, {"replicas": 0}, {"observedGeneration": 2})).state == "ready"
    )


@pytest.mark.parametrize(
    ("spec", "status", "state"),
    [
        ({}, {"availableReplicas": 2, "currentRevision": "b"}, ReadinessState.READY),
        ({}, {"availableReplicas": 1, "currentRevision": "b"}, ReadinessState.PROGRESSING),
        ({}, {"availableReplicas": 2, "updatedReplicas": 1}, ReadinessState.PROGRESSING),
        ({"updateStrategy": {"type": "OnDelete"}}, {"availableReplicas": 2}, ReadinessState.READY),
        (
            {"updateStrategy": {"rollingUpdate": {"partition": 1}}},
            {"availableReplicas": 2, "updatedReplicas": 1},
            ReadinessState.READY,
        ),
    ],
)
def test_stateful_sets(spec: Object, status: Object, state: ReadinessState) -> None:
    """All pods of the newest revision, unless the strategy says otherwise."""
    given = {"observedGeneration": 2, "currentRevision": "a", "updateRevision": "b", **status}

    assert health(workload(STATEFUL_SETS, {"replicas": 2, **spec}, given)).state == state


@pytest.mark.parametrize(
    ("spec", "status", "words"),
    [
        ({}, {}, "-0 is not created"),
        ({"ordinals": {"start": 4}}, {"replicas": 1, "availableReplicas": 1}, "-5 is not created"),
        ({}, {"replicas": 1}, "0 of 2 available"),
        ({"podManagementPolicy": "Parallel"}, {}, "0 of 2 available"),
    ],
)
def test_a_stateful_set_names_the_pod_that_is_not_created(
    spec: Object, status: Object, words: str
) -> None:
    """A pod of that name may be left of an earlier one, which only the garbage collector sees."""
    given = {"observedGeneration": 2, "currentRevision": "b", "updateRevision": "b", **status}

    assert words in health(workload(STATEFUL_SETS, {"replicas": 2, **spec}, given)).message


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, ReadinessState.PROGRESSING),
        ({"desiredNumberScheduled": 0}, ReadinessState.READY),
        ({"desiredNumberScheduled": 2, "numberAvailable": 2}, ReadinessState.PROGRESSING),
        (
            {"desiredNumberScheduled": 2, "numberAvailable": 2, "updatedNumberScheduled": 2},
            ReadinessState.READY,
        ),
    ],
)
def test_daemon_sets(status: Object, state: ReadinessState) -> None:
    """Every node has a new pod; no node is enough, too, but not before the controller looked."""
    found = health(workload(DAEMON_SETS, {}, {"observedGeneration": 2, **status}))

    assert found.state == state


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], ReadinessState.PROGRESSING),
        ([condition("Complete")], ReadinessState.READY),
        ([condition("Failed", message="too often")], ReadinessState.FAILED),
        ([condition("Failed", "False")], ReadinessState.PROGRESSING),
    ],
)
def test_jobs(conditions: list[Object], state: ReadinessState) -> None:
    """A failed one says so, instead of being waited for."""
    assert health(manifest(JOBS, "j", spec={}, status={"conditions": conditions})).state == state


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], ReadinessState.PROGRESSING),
        ([condition("NamesAccepted"), condition("Established")], ReadinessState.READY),
        ([condition("NamesAccepted", "False", message="taken")], ReadinessState.FAILED),
        ([condition("NonStructuralSchema")], ReadinessState.FAILED),
    ],
)
def test_crds(conditions: list[Object], state: ReadinessState) -> None:
    """Established, or why not."""
    assert health(manifest(CRDS, "c", status={"conditions": conditions})).state == state


def test_a_namespace_that_goes_away_is_not_ready() -> None:
    """And any other object that is being deleted is not either."""
    assert health({**namespace("n"), "status": {"phase": "Terminating"}}).state == "progressing"
    going = config_map("c")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert health(going).state == "progressing"
    assert health(config_map("c")).state == "ready"


def test_endpoints_count_unless_they_say_that_they_are_not_ready() -> None:
    """As the API defines it."""
    endpoints: list[Any] = [
        {"addresses": ["127.0.0.1"], "conditions": {"ready": True}},
        {"addresses": ["127.0.0.2"], "conditions": {"ready": False}},
        {"addresses": ["127.0.0.3"]},
    ]

    assert ready_endpoints([{"endpoints": endpoints}, {"endpoints": None}]) == 2


def test_a_summary_names_what_is_missing_and_what_is_on_its_way() -> None:
    """In words that fit a condition's message."""
    ready = workload(DEPLOYMENTS, {"replicas": 2}, ROLLED_OUT)
    late = deployment("late")
    wanted = [Ref.of(ready), Ref.of(late), Ref("apps", "Deployment", "home", "gone")]
    settled = Ref(CONFIG_MAPS.group, "ConfigMap", "home", "c")

    found = summarize([*wanted, settled], {Ref.of(ready): ready, Ref.of(late): late})

    assert not found.is_ready
    assert str(found) == (
        "1 of 3 ready; Deployment home/gone: it is not there;"
        " Deployment home/late 0/1: 0 of 1 updated"
    )
