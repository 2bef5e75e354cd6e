"""A verification on a real API server, whose proxy leads to a server of ours."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from knfleet.api.core import NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES
from knfleet.api.knative.resources import Component
from knfleet.api.knative.verification import (
    BROKERS,
    KSERVICES,
    TRIGGERS,
    VERIFY_LABEL,
    VerifyAnswer,
    VerifyRequest,
)
from knfleet.api.meta import Object, Resource
from knfleet.apply.manifest_fields import part
from knfleet.apply.rights import Right
from knfleet.install.access_manifests import Account, access_objects
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden
from knfleet.operator.spoke_access.release_rights import verification_rights
from knfleet.operator.spoke_access.rights import SpokeRights
from knfleet.operator.verification.verify_answers import (
    FAILED,
    FORBIDDEN,
    INTERRUPTED,
    SIMULATED,
    SUCCEEDED,
)
from knfleet.operator.verification.verify_objects import ServiceRoute, verify_namespace
from knfleet.operator.verification.verify_run import VerifyRun
from knfleet.operator.verification.verify_target import VerifyTarget, VerifyTiming
from knfleet.workflows.object_lists import apply_all
from testbed.fakes.proxies import Relay
from testbed.hubs import with_token
from testbed.waiting import until
from tests.support.knative_double import HOMES, KnativeDouble, knative
from tests.support.objects import manifest

QUICK = VerifyTiming(retry_seconds=0.1)
HOME: dict[Component, str] = {"serving": HOMES[0], "eventing": HOMES[1]}
REQUEST = VerifyRequest(request="r1", timeout="20s")
OWN_IMAGE = "registry.example.com/copies/knfleet:1"
"""Pods of our own image run as processes, so that events reach them."""
PATIENT = VerifyRequest(request="r1", timeout="60s")


@pytest.fixture
async def double(hub: Client) -> AsyncIterator[KnativeDouble]:
    """A cluster on which Knative seems to work."""
    async with knative(hub) as running:
        yield running


async def verified(
    client: Client,
    request: VerifyRequest = REQUEST,
    component: Component = "serving",
    kind: type[VerifyRun] = VerifyRun,
) -> VerifyAnswer:
    """What a verification says."""
    made = kind(client, component, HOME[component], default_image=OWN_IMAGE, timing=QUICK)
    return await made.run(request)


class FewAttempts(VerifyRun):
    """Waits for readiness as long as it is told to, and asks for three seconds."""

    async def insist(
        self, route: ServiceRoute, seconds: float, attempt: Callable[[], Awaitable[str]]
    ) -> None:
        await super().insist(route, 3, attempt)


class RefusedClient(Client):
    """Notes that the API server has refused to make something."""

    refused = False

    async def create(
        self, resource: Resource, manifest: Object, *arguments: Any, **options: Any
    ) -> Object:
        try:
            return await super().create(resource, manifest, *arguments, **options)
        except Forbidden:
            self.refused = True
            raise


async def left(client: Client) -> list[str]:
    """What verifications have left."""
    found: list[str] = []
    for resource in (KSERVICES, BROKERS, TRIGGERS):
        found += [each["metadata"]["name"] for each in (await client.list(resource)).items]
    for resource in (PODS, SERVICES):
        listed = await client.list(resource, labels=VERIFY_LABEL)
        found += [name_of(each) for each in listed.items if not is_going(each)]
    spaces = await client.list(NAMESPACES, labels=VERIFY_LABEL)
    return found + [name_of(each) for each in spaces.items if not is_going(each)]


def name_of(found: Object) -> str:
    """The name of an object."""
    return found["metadata"]["name"]


def is_going(found: Object) -> bool:
    """Whether an object is being deleted."""
    return "deletionTimestamp" in found["metadata"]


async def test_knative_that_works_is_verified_and_nothing_is_left(
    hub: Client, double: KnativeDouble
) -> None:
    """By the host of the route, through the proxy; for Eventing by an event that arrives."""
    serving = await verified(hub)
    eventing = await verified(hub, component="eventing")
    again = await verified(hub)

    assert (serving.status, serving.reason) == ("True", SUCCEEDED), serving
    assert "knative-serving/kourier" in serving.message
    assert (eventing.status, eventing.reason) == ("True", SUCCEEDED), eventing
    assert "reached a subscriber through a Trigger" in eventing.message
    assert again.status == "True", again
    assert len(set(double.seen)) == 3
    assert await left(hub) == []


@pytest.mark.full
async def test_what_fails_is_named_and_nothing_is_left(hub: Client, double: KnativeDouble) -> None:
    """Never Ready, an error of the ingress, the answer of another, an event that is refused."""
    double.problem = "Revision is missing its image"
    unready = await verified(hub, replace(REQUEST, timeout="10s"))
    double.problem, double.mode = "", "fails"
    failing = await verified(hub, PATIENT, kind=FewAttempts)
    double.mode = "foreign"
    foreign = await verified(hub, PATIENT, kind=FewAttempts)
    double.mode = "works"
    other = replace(PATIENT, image="example.com/mine:1", text="not there")
    own = await verified(hub, other, kind=FewAttempts)

    for each in (unready, failing, foreign, own):
        assert (each.status, each.reason) == ("False", FAILED), each
    assert "Knative Service knfleet-verify-serving/verify-" in unready.message
    assert "not Ready within 10 s: Revision is missing its image" in unready.message
    assert "503" in failing.message
    assert "through Service knative-serving/kourier" in failing.message
    assert "does not contain" in foreign.message
    assert "something else" in foreign.message
    assert "'not there'" in own.message
    assert await left(hub) == []


async def test_an_event_that_a_broker_accepts_and_loses_is_not_verified(
    hub: Client, double: KnativeDouble
) -> None:
    """What the subscriber says counts, and not that the Broker takes the event."""
    double.mode = "loses"

    lost = await verified(hub, PATIENT, component="eventing", kind=FewAttempts)

    assert (lost.status, lost.reason) == ("False", FAILED), lost
    assert (
        "none arrives at the subscriber of Trigger knfleet-verify-eventing/verify-" in lost.message
    )
    assert await left(hub) == []


async def test_a_pod_is_made_once_its_namespace_has_the_account(
    hub: Client, hub_connection: Connection
) -> None:
    """A new namespace has none for a moment; without an end, what the API server said is raised."""
    spec = {"serviceAccountName": "later", "containers": [{"name": "app", "image": "a.test/b"}]}
    wanted = manifest(PODS, "verify-early", "default", spec=spec)
    async with RefusedClient(hub_connection) as client:
        short = VerifyTarget(client, "eventing", replace(QUICK, gone_seconds=0.3))
        with pytest.raises(Forbidden, match="error looking up service account default/later"):
            await short.create(PODS, wanted)
        client.refused = False
        task = asyncio.create_task(VerifyTarget(client, "eventing", QUICK).create(PODS, wanted))

        async def is_refused() -> bool:
            return client.refused

        await until(is_refused, "the Pod is refused")
        await hub.create(SERVICE_ACCOUNTS, manifest(SERVICE_ACCOUNTS, "later", "default"))
        made = await task

    assert name_of(made) == "verify-early"


async def test_a_subscriber_that_is_simulated_verifies_nothing(
    hub: Client, double: KnativeDouble
) -> None:
    """As of an image that does not run on a dev node; a cluster may have nodes of both kinds."""
    found = await verified(hub, replace(REQUEST, image="example.com/echo:1"), component="eventing")

    assert (found.status, found.reason) == ("Unknown", SIMULATED), found
    assert "knfleet-verify-eventing/verify-subscriber" in found.message
    assert await left(hub) == []


@pytest.mark.full
async def test_leftovers_of_a_run_that_was_killed_are_removed_by_the_next(
    hub: Client, double: KnativeDouble
) -> None:
    """They are found by their label, whatever their names are."""
    space = verify_namespace("serving")
    meta = {"labels": {VERIFY_LABEL: "temporary"}, "name": space}
    await hub.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    old = manifest(KSERVICES, "verify-old", space)
    old["metadata"]["labels"] = {VERIFY_LABEL: "verify-old"}
    await hub.create(KSERVICES, old)

    found = await verified(hub)

    assert found.status == "True", found
    assert "verify-old" in double.seen
    assert await left(hub) == []


@pytest.mark.full
async def test_a_run_that_is_cancelled_cleans_up(hub: Client, double: KnativeDouble) -> None:
    """As when the process ends, or loses the spoke."""
    double.problem = "held"
    task = asyncio.create_task(verified(hub))

    async def is_made() -> bool:
        return bool(double.seen)

    await until(is_made, "a Knative Service is made")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert task.cancelled()
    assert await left(hub) == []


@pytest.mark.full
async def test_a_namespace_that_an_administrator_made_stays(
    hub: Client, double: KnativeDouble
) -> None:
    space = verify_namespace("eventing")
    await hub.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
    )

    found = await verified(hub, component="eventing")

    assert found.status == "True", found
    assert "deletionTimestamp" not in (await hub.get(NAMESPACES, space))["metadata"]
    assert (await hub.list(BROKERS, space)).items == []


async def test_pods_that_are_simulated_verify_nothing(hub: Client, double: KnativeDouble) -> None:
    """It is said, it does not pass, and nothing is made."""
    containers = [{"name": "app", "image": "example.com/app:1"}]
    await hub.create(PODS, manifest(PODS, "activator", HOMES[0], spec={"containers": containers}))

    async def is_reported() -> bool:
        found = await hub.get(PODS, "activator", HOMES[0])
        return bool(part(found, "status").get("containerStatuses"))

    await until(is_reported, "the dev node reports the pod")
    found = await verified(hub)

    assert (found.status, found.reason) == ("Unknown", SIMULATED), found
    assert "knative-serving/activator" in found.message
    assert double.seen == []


@pytest.mark.full
async def test_an_api_server_that_is_away_proves_nothing(
    hub_connection: Connection,
) -> None:
    """Neither that Knative works, nor that it does not."""
    async with Relay() as nothing:
        address = f"https://127.0.0.1:{nothing.port}"
    away = replace(hub_connection, endpoint=replace(hub_connection.endpoint, server=address))
    async with Client(away) as client:
        found = await verified(client)

    assert (found.status, found.reason) == ("Unknown", INTERRUPTED), found


@pytest.mark.parametrize(
    ("component", "parts", "missed"),
    [
        ("serving", ("kourier",), Right("", "services/proxy", "get", HOMES[0], "kourier:80")),
        (
            "eventing",
            (),
            Right("", "pods/log", "get", "knfleet-verify-eventing", "verify-subscriber"),
        ),
    ],
)
async def test_the_generated_rights_suffice_and_one_that_is_missing_is_named(
    hub: Client,
    double: KnativeDouble,
    hub_connection: Connection,
    component: Component,
    parts: tuple[str, ...],
    missed: Right,
) -> None:
    """The namespace is made with the rights, so that the account need not make any."""
    meta: Object = {"name": "verifier", "namespace": "default"}
    await hub.create(
        SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
    )
    rights = verification_rights(component, HOME[component], parts)
    await apply_all(hub, access_objects(rights, Account("verifier", "default")))
    asked: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await hub.create(
        SERVICE_ACCOUNTS, asked, "default", name="verifier", subresource="token"
    )
    token = answer["status"]["token"]

    async with Client(with_token(hub_connection, token)) as client:
        enough = await verified(client, component=component)
        fewer = SpokeRights(rights.rights - {missed}, rights.namespaces, {})
        await apply_all(hub, access_objects(fewer, Account("verifier", "default")))
        missing = await verified(client, component=component)

    assert enough.status == "True", enough
    assert (missing.status, missing.reason) == ("Unknown", FORBIDDEN), missing
    assert f"may not: {missed};" in missing.message
    assert "knfleet rights" in missing.message
    assert await left(hub) == []
