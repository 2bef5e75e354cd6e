"""One installation as a chain: the first link that does not hold is the one that is opened."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from knfleet.api.core import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from knfleet.api.knative.conditions import (
    DEPLOYMENTS_AVAILABLE,
    INSTALL_SUCCEEDED,
    TARGET_CLUSTER_RESOLVED,
    VERSION_MIGRATION_ELIGIBLE,
)
from knfleet.api.knative.resources import KnativeStatus
from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.change_set import FailureKind, MissingRight, ObjectFailure
from knfleet.apply.refs import Ref
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Endpoint
from knfleet.operator.status.messages import failure_text
from knfleet.operator.status.status_builder import StatusBuilder
from knfleet.view.chain import Chain, chain_of, opened
from knfleet.view.fleet_reader import cluster_row
from knfleet.view.workload_findings import pod_message
from testbed.fakes.clients import client_for
from testbed.fakes.fleet import Fleet
from tests.support.overview_samples import condition, install, managed

TARGET = condition(TARGET_CLUSTER_RESOLVED, "True")
ELIGIBLE = condition(VERSION_MIGRATION_ELIGIBLE, "True")
APPLYING = "applying 113 objects of 1.23.0"
APPLIED = condition(INSTALL_SUCCEEDED, "Unknown", "Installing", APPLYING)
WAITING = condition(
    DEPLOYMENTS_AVAILABLE,
    "False",
    "NotReady",
    "Waiting on deployments: activator; 4 of 5 ready: activator 0/1 (0 of 1 available)",
)
WORKLOADS = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, JOBS, REPLICA_SETS, PODS, EVENTS)


def states(chain: Chain) -> list[str]:
    """How the four links stand."""
    return [link.state for link in chain.links]


def failed_install(problem: str) -> Object:
    """A condition of an installation that failed."""
    message = f"Install failed with message: {problem}"
    return condition(INSTALL_SUCCEEDED, "False", "Error", message)


def test_everything_holds() -> None:
    said = [TARGET, ELIGIBLE, condition(INSTALL_SUCCEEDED, "True")]
    said.append(condition(DEPLOYMENTS_AVAILABLE, "True"))

    chain = chain_of(install("s", *said, on="edge-1", version="1.23.0"))

    assert states(chain) == ["ok"] * 4
    assert chain.failing is None


def test_a_lost_target_makes_the_rest_what_was_last_known() -> None:
    """Nobody may read from it that workloads still run."""
    lost = condition(TARGET_CLUSTER_RESOLVED, "False", "RemoteClientCreationFailed", "no answer")
    said = [lost, ELIGIBLE, condition(INSTALL_SUCCEEDED, "True")]
    said.append(condition(DEPLOYMENTS_AVAILABLE, "True"))
    row = cluster_row(managed("edge-1", "Unknown"), ())

    chain = chain_of(install("s", *said, on="edge-1", version="1.23.0"), row)

    assert states(chain) == ["bad", "unknown", "unknown", "unknown"]
    assert chain.failing is not None
    assert (chain.failing.name, chain.failing.reason) == ("target", "RemoteClientCreationFailed")
    assert chain.failing.details[0].what == "cluster edge-1"
    assert chain.links[3].summary == "last known: all workloads are available"


def test_a_release_that_cannot_be_had_is_the_release_s_fault() -> None:
    problem = "version 9.9 is not available; there are 1.22.1, 1.23.0"

    chain = chain_of(install("s", TARGET, ELIGIBLE, failed_install(problem)))

    assert states(chain) == ["ok", "bad", "unknown", "unknown"]
    assert chain.links[1].summary == problem


@pytest.mark.parametrize(
    "failure",
    [
        ObjectFailure(Ref("apps", "Deployment", "ns", "a"), FailureKind.QUOTA, "exceeded quota"),
        ObjectFailure(
            Ref("apps", "Deployment", "ns", "a"),
            FailureKind.FORBIDDEN,
            "forbidden",
            denials=(MissingRight("deployments", "apps", "patch"),),
        ),
    ],
)
def test_what_the_target_refuses_is_the_objects_fault(failure: ObjectFailure) -> None:
    """The very sentences that the operator writes are told apart."""
    chain = chain_of(install("s", TARGET, ELIGIBLE, failed_install(failure_text([failure]))))

    assert states(chain) == ["ok", "ok", "bad", "unknown"]


def test_a_migration_that_is_refused_is_the_release_s_fault() -> None:
    refused = condition(VERSION_MIGRATION_ELIGIBLE, "False", "Error", "not supported")

    chain = chain_of(install("s", TARGET, refused, version="1.20.0"))

    assert chain.links[1].state == "bad"


def test_waiting_for_workloads_names_them() -> None:
    chain = chain_of(install("s", TARGET, ELIGIBLE, APPLIED, WAITING))

    assert chain.failing is not None
    assert chain.failing.name == "readiness"
    assert chain.failing.summary == "4 of 5 workloads are available; waiting for activator"


def test_a_fresh_custom_resource_is_unknown_all_along() -> None:
    """Nobody has looked at it; nothing is claimed."""
    chain = chain_of(install("s"))

    assert states(chain) == ["unknown"] * 4


def test_the_statement_of_a_first_pass_is_understood() -> None:
    """What the operator says while it applies is busy, not broken."""
    said = StatusBuilder(KnativeStatus(), 2, datetime(2026, 1, 1, tzinfo=UTC))
    said.eligible()
    said.resolved()
    said.installing(APPLYING)
    manifest = install("s")
    manifest["status"] = msgspec.to_builtins(said.status)

    assert states(chain_of(manifest)) == ["ok", "ok", "busy", "unknown"]


async def test_the_failing_link_is_opened_down_to_the_pod(fleet: Fleet) -> None:
    """Deployment, newest ReplicaSet, pod, and what kubelet and Events say of it."""
    spoke = fleet.add_spoke("one")
    for resource in WORKLOADS:
        spoke.resources[resource.group, resource.version, resource.plural] = resource
        spoke.objects[resource] = {}
    chain = chain_of(install("s", TARGET, ELIGIBLE, APPLIED, WAITING, on="one"))
    label = {well_known.PART_OF: chain.members.partition("=")[2]}
    sick = spoke.put(DEPLOYMENTS, workload("activator", labels=label))
    healthy = workload("webhook", labels=label)
    healthy["status"] = {"updatedReplicas": 1, "availableReplicas": 1, "replicas": 1}
    spoke.put(DEPLOYMENTS, healthy)
    spoke.put(DEPLOYMENTS, workload("stranger"))
    old = spoke.put(REPLICA_SETS, workload("activator-old", owner=sick, revision="1"))
    new = spoke.put(REPLICA_SETS, workload("activator-new", owner=sick, revision="2"))
    spoke.put(PODS, workload("activator-old-x", owner=old))
    pod = workload("activator-new-x", owner=new)
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pod["status"] = {"containerStatuses": [{"name": "activator", "state": state}]}
    made = spoke.put(PODS, pod)
    event = workload("one")
    event |= {"reason": "Failed", "message": "registry says no", "type": "Warning"}
    event["involvedObject"] = {"uid": made["metadata"]["uid"]}
    spoke.put(EVENTS, event)
    endpoint = Endpoint(fleet.servers.url("one"), ca=fleet.authority.pem)
    async with client_for(endpoint) as client:
        details = await details_of(chain, client)

    (found,) = details
    assert found.what == "Deployment knative/activator"
    (replicas,) = found.below
    assert replicas.what == "ReplicaSet knative/activator-new"
    (told,) = replicas.below
    assert told.what == "Pod knative/activator-new-x"
    assert told.state == "bad"
    assert "container activator: ImagePullBackOff: no such image" in told.message
    assert "Failed: registry says no" in told.message


async def details_of(chain: Chain, client: Client) -> Any:
    """What is found when a chain is opened."""
    whole = await opened(chain, client)
    assert whole.failing is not None
    return whole.failing.details


def workload(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    owner: Object | None = None,
    revision: str = "",
) -> Object:
    """Something that does not run yet."""
    owners = [{"uid": owner["metadata"]["uid"]}] if owner else []
    return {
        "metadata": {
            "name": name,
            "namespace": "knative",
            "labels": labels or {},
            "ownerReferences": owners,
            "annotations": {"deployment.kubernetes.io/revision": revision} if revision else {},
        },
        "spec": {"replicas": 1},
        "status": {},
    }


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            {"conditions": [condition("PodScheduled", "False", "Unschedulable", "0/3 nodes")]},
            "Unschedulable: 0/3 nodes",
        ),
        (
            {"conditions": [condition("ContainersReady", "False", "ContainersNotReady", "a, b")]},
            "ContainersNotReady: a, b",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "c",
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                    }
                ]
            },
            "container c: CrashLoopBackOff (before: OOMKilled, exit code 137)",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "Evicted: disk"),
        ({"phase": "Pending"}, "Pending"),
    ],
)
def test_a_pod_says_why_it_is_not_ready(status: Object, words: str) -> None:
    """The words are those of scheduler and kubelet."""
    assert pod_message({"metadata": {"name": "p", "namespace": "n"}, "status": status}) == words
