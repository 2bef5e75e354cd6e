"""The gRPC server refuses what a caller may not, whichever way it asks."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Struct

from knfleet.agent.grpc.event_channel import GrpcIdentity, credentials
from knfleet.api.addon.managedclusteraddon import ADDONS, ADDONS_BETA, ManagedClusterAddOn
from knfleet.api.certificate_requests import CSR_USER, CSRS, GRPC_SIGNER
from knfleet.api.cluster.access import ACCESS_SECRET
from knfleet.api.cluster.managedcluster import (
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    GROUP_PREFIX,
    LEASE_NAME,
    MANAGED_CLUSTERS,
    agent_user,
)
from knfleet.api.core import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    LEASES,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from knfleet.api.meta import Key, Object
from knfleet.api.rbac_rules import cluster_role, rule
from knfleet.api.schema import decode
from knfleet.api.work.manifestwork import WORKS
from knfleet.cloudevents.cloud_event import CloudEvent
from knfleet.cloudevents.event_types import (
    ACCESS_TOKENS,
    BUNDLES,
    CREATE,
    DELETE,
    EVENTS,
    STATUS,
    TOKEN_REQUESTS,
    UPDATE,
    EventType,
    data_type,
)
from knfleet.cloudevents.object_events import read_object
from knfleet.cloudevents.protobuf_messages import PUBLISH
from knfleet.cloudevents.work_events import DELETED, status_event
from knfleet.hub.addon.registration.agent_rights import token_infrastructure
from knfleet.hub.certificates.port_certificates import authority
from knfleet.hub.grpc.calls.access_check import TOKEN_REVIEWS
from knfleet.hub.grpc.calls.access_rules import REVIEWS, Access
from knfleet.hub.grpc.calls.caller import Caller
from knfleet.hub.grpc.event_service import ServiceLimits
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden, NotFound
from testbed import grpc_servers, hubs
from testbed.agent_process import bootstrap_token
from testbed.grpc_servers import RunningServer
from testbed.waiting import PATIENCE_SECONDS, until
from tests.support.grpc_calls import (
    CertificateMaker,
    accepted_cluster,
    calling,
    event_of,
    refusal,
    subscription_refusal,
)
from tests.support.grpc_works import work
from tests.support.registration import csr, request_pem

STREAMS = 3


class Door(Struct, frozen=True):
    """A gRPC server at a hub with two clusters, and who can sign certificates for it."""

    hub: Client
    server: RunningServer
    maker: CertificateMaker


@pytest.fixture
async def door(fleet: Client, fleet_connection: Connection, tmp_path: Path) -> AsyncIterator[Door]:
    """Everything that runs; two clusters are accepted."""
    async with (
        hubs.running(fleet_connection),
        grpc_servers.running(
            fleet_connection, tmp_path, limits=ServiceLimits(streams_per_caller=STREAMS)
        ) as server,
    ):
        for name in ("c1", "c2"):
            try:
                await fleet.get(CLUSTERS, name)
            except NotFound:
                await accepted_cluster(fleet, name)
            await until(
                lambda each=name: may_report(fleet, each), f"the agent of {name} has rights"
            )
        yield Door(fleet, server, await CertificateMaker.of(fleet))


async def may_report(fleet: Client, cluster: str) -> bool:
    """Whether the rights of a cluster's agent are in effect."""
    caller = Caller(agent_user(cluster, "a1"), (f"{GROUP_PREFIX}{cluster}", MANAGED_CLUSTERS))
    needed = Access("update", WORKS.group, WORKS.plural, cluster, subresource="status")
    answer = await fleet.create(REVIEWS, needed.review(caller))
    return bool(answer["status"]["allowed"])


def lease(name: str, namespace: str, version: str = "1") -> Object:
    """A Lease as an agent sends it."""
    meta = {"name": name, "namespace": namespace, "resourceVersion": version}
    return {"metadata": meta, "spec": {"holderIdentity": "thief"}}


def request(cluster: str, user: str, groups: list[str], **meta: Any) -> Object:
    """A certificate request for gRPC."""
    pem = request_pem(ec.generate_private_key(ec.SECP256R1()), user, groups)
    made = csr(cluster, pem, signerName=GRPC_SIGNER)
    made["metadata"] = {"name": "c1-x", "labels": {CLUSTER_NAME_LABEL: cluster}, **meta}
    return made


def named(name: str, namespace: str = "") -> Object:
    """An object with nothing but a name and perhaps a namespace."""
    return {"metadata": {"name": name, "resourceVersion": "1", "namespace": namespace}}


def forbidden_events() -> dict[str, CloudEvent]:
    """What the agent of c1 must not get done, by what it tries."""
    theirs = [f"{GROUP_PREFIX}c2", MANAGED_CLUSTERS]
    mine = [f"{GROUP_PREFIX}c1", MANAGED_CLUSTERS]
    me, other = agent_user("c1", "a1"), agent_user("c2", "a1")
    event = {"metadata": {"name": "e", "namespace": "kube-system"}, "reason": "x"}
    meta: Object = {"name": "w", "namespace": "c2", "uid": "u", "generation": 1}
    gone = {"conditions": [{"type": DELETED, "status": "True"}]}
    of_work = status_event(meta, gone, source="x", original="kube", sequence="1")
    deletion = CloudEvent(
        str(EventType(BUNDLES, STATUS, DELETE)), extensions={"clustername": "c1"}, data=b"{}"
    )
    return {
        "the Lease of another": event_of(LEASES, UPDATE, lease(LEASE_NAME, "c2"), cluster="c2"),
        "another's namespace inside": event_of(LEASES, UPDATE, lease(LEASE_NAME, "c2")),
        "another Lease": event_of(LEASES, UPDATE, lease("kube-scheduler", "c1")),
        "no version": event_of(LEASES, UPDATE, lease(LEASE_NAME, "c1", "")),
        "another's status": event_of(CLUSTERS, UPDATE, named("c2"), part=STATUS, cluster="c2"),
        "another's name inside": event_of(CLUSTERS, UPDATE, named("c2"), part=STATUS),
        "another's spec": event_of(CLUSTERS, UPDATE, named("c2")),
        "a cluster of its own": event_of(CLUSTERS, CREATE, named("c3"), cluster="c3"),
        "a cluster in a namespace": event_of(CLUSTERS, UPDATE, named("c1", "c1"), part=STATUS),
        "an Event elsewhere": event_of(EVENTS, CREATE, event),
        "an Event of another": event_of(EVENTS, CREATE, event, cluster="kube-system"),
        "the token of another": event_of(
            ACCESS_TOKENS, UPDATE, {**named(ACCESS_SECRET, "c2"), "data": {"token": "eA=="}}
        ),
        "unknown data of a token": event_of(
            ACCESS_TOKENS, UPDATE, {**named(ACCESS_SECRET, "c1"), "data": {"x": "eA=="}}
        ),
        "a certificate of another": event_of(CSRS, CREATE, request("c2", other, theirs)),
        "another's label": event_of(CSRS, CREATE, request("c1", other, theirs)),
        "another's group": event_of(CSRS, CREATE, request("c1", me, theirs)),
        "one group more": event_of(CSRS, CREATE, request("c1", me, [*mine, "system:masters"])),
        "another signer": event_of(
            CSRS,
            CREATE,
            {
                **request("c1", me, mine),
                "spec": {
                    **request("c1", me, mine)["spec"],
                    "signerName": "kubernetes.io/kubelet-serving",
                },
            },
        ),
        "another name of a request": event_of(CSRS, CREATE, request("c1", me, mine, name="node")),
        "another's work": of_work,
        "a deletion": deletion,
        "a Secret": CloudEvent("v1.secrets.spec.update_request", extensions={"clustername": "c1"}),
        "no cluster": CloudEvent(f"{data_type(LEASES)}.spec.update_request", data=b"{}"),
        "an add-on of another": event_of(ADDONS_BETA, UPDATE, named("a", "c2"), part=STATUS),
        "a token": event_of(TOKEN_REQUESTS, CREATE, named("default", "c1")),
    }


async def test_the_agent_of_one_cluster_gets_nothing_done_for_another(door: Door):
    before = await door.hub.get(LEASES, LEASE_NAME, "c2")
    taken: list[str] = []
    async with calling(door.server, door.maker.identity("c1")) as agent:

        async def is_own_lease_written() -> bool:
            own = await door.hub.get(LEASES, LEASE_NAME, "c1")
            return await refusal(agent, event_of(LEASES, UPDATE, own)) == ""

        await until(is_own_lease_written, "the agent writes its own Lease")
        for what, event in forbidden_events().items():
            if not await refusal(agent, event):
                taken.append(what)

    assert taken == []
    after = await door.hub.get(LEASES, LEASE_NAME, "c2")
    assert after["spec"].get("holderIdentity") == before["spec"].get("holderIdentity")
    assert after["spec"].get("holderIdentity") != "thief"
    with pytest.raises(NotFound):
        await door.hub.get(CSRS, "c1-x")


async def test_a_status_for_the_work_of_another_cluster_changes_nothing(door: Door):
    """Even when the UID of the work is known, and the event names the own cluster."""
    made = work("w-of-c2")
    made["metadata"]["namespace"] = "c2"
    theirs = await door.hub.create(WORKS, made)
    meta = {**theirs["metadata"], "namespace": "c1"}
    status: Object = {"conditions": [{"type": "Applied", "status": "True"}]}
    async with calling(door.server, door.maker.identity("c1")) as agent:
        event = status_event(meta, status, source="x", original="kube", sequence="1")
        assert await refusal(agent, event) == ""

    found = await door.hub.get(WORKS, "w-of-c2", "c2")
    assert not found.get("status", {}).get("conditions")
    assert not found["metadata"].get("finalizers")


async def test_nobody_follows_the_objects_of_another_cluster(door: Door):
    seen: list[str] = []
    async with calling(door.server, door.maker.identity("c1"), "c2") as agent:
        for resource in (CLUSTERS, CSRS, LEASES):
            if not await subscription_refusal(agent, data_type(resource)):
                seen.append(resource.plural)
        if not await subscription_refusal(agent, BUNDLES):
            seen.append("works")
    assert seen == []
    async with calling(door.server, door.maker.identity("c1")) as agent:
        assert await subscription_refusal(agent, BUNDLES) == ""


async def test_names_and_groups_of_an_agent_must_fit_together(door: Door):
    """Also when a CA has signed something that it should not have."""
    odd = {
        "the groups of another": door.maker.identity("c1", groups=(f"{GROUP_PREFIX}c2",)),
        "no group of its own": door.maker.identity("c1", groups=(MANAGED_CLUSTERS,)),
        "no agent's name": door.maker.identity("c1", user="somebody"),
        "too many parts": door.maker.identity("c1", user=f"{GROUP_PREFIX}c1:a:b"),
    }
    taken: list[str] = []
    for what, identity in odd.items():
        async with calling(door.server, identity) as agent:
            if not await subscription_refusal(agent, BUNDLES):
                taken.append(what)
    assert taken == []


async def test_certificates_that_expired_or_are_foreign_and_bad_tokens_are_refused(door: Door):
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    lifetime = (now - timedelta(hours=1), now + timedelta(hours=1))
    foreign = CertificateMaker(authority(key, "foreign", *lifetime), key)
    wrong = {
        "expired": door.maker.identity("c1", ends=timedelta(minutes=-1)),
        "foreign": foreign.identity("c1"),
        "none": GrpcIdentity(),
        "bad token": GrpcIdentity(token="nonsense"),
    }
    taken: list[str] = []
    for what, identity in wrong.items():
        channel = grpc.aio.secure_channel(door.server.url, credentials(door.server.ca, identity))
        metadata = [("authorization", f"Bearer {identity.token}")] if identity.token else []
        try:
            await channel.unary_unary(PUBLISH)(b"", timeout=PATIENCE_SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            found: Any = error
            if found.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED):
                taken.append(f"{what}: {found.code()}")
        else:
            taken.append(what)
        finally:
            await channel.close()
    assert taken == []


async def test_a_join_token_asks_to_join_and_sees_only_its_own_requests(door: Door):
    token = await bootstrap_token(door.hub)
    me = agent_user("c9", "a1")
    groups = [f"{GROUP_PREFIX}c9", MANAGED_CLUSTERS]
    asked = request("c9", me, groups, name="c9-a", annotations={CSR_USER: me})
    cluster: Object = {
        "metadata": {
            "name": "c9",
            "annotations": {"agent.open-cluster-management.io/a": "b", "knfleet.dev/x": "y"},
        },
        "spec": {"hubAcceptsClient": True, "leaseDurationSeconds": 1},
    }
    async with calling(door.server, GrpcIdentity(token=token), "c9") as joining:
        assert await refusal(joining, event_of(CLUSTERS, CREATE, cluster, cluster="c9")) == ""
        assert await refusal(joining, event_of(CSRS, CREATE, asked, cluster="c9")) == ""
        assert await subscription_refusal(joining, data_type(CSRS)) == ""
        assert await subscription_refusal(joining, BUNDLES)
        assert await refusal(
            joining, event_of(LEASES, UPDATE, lease(LEASE_NAME, "c9"), cluster="c9")
        )

    found = await door.hub.get(CLUSTERS, "c9")
    assert found["spec"]["hubAcceptsClient"] is False
    assert set(found["metadata"]["annotations"]) == {"agent.open-cluster-management.io/a"}
    made = await door.hub.get(CSRS, "c9-a")
    assert made["metadata"]["annotations"][CSR_USER].endswith("agent-registration-bootstrap")
    await door.hub.delete(CSRS, Key("", "c9-a"))
    await door.hub.delete(CLUSTERS, Key("", "c9"))


async def test_a_subscription_ends_with_the_token_by_which_it_began(
    door: Door, fleet_connection: Connection, tmp_path: Path
):
    """Also while the rights of its user are still there."""
    account: Object = {"apiVersion": "v1", "kind": "ServiceAccount"}
    meta = {"name": "follower", "namespace": "c1"}
    await door.hub.apply(SERVICE_ACCOUNTS, {**account, "metadata": meta})
    role = cluster_role("follower", [rule(LEASES.group, [LEASES.plural], ["list", "watch"])])
    await door.hub.apply(CLUSTER_ROLES, role)
    binding: Object = {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "follower"},
        "roleRef": {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": "follower"},
        "subjects": [{"kind": "ServiceAccount", **meta}],
    }
    await door.hub.apply(CLUSTER_ROLE_BINDINGS, binding)
    asked: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    answer = await door.hub.create(
        SERVICE_ACCOUNTS, asked, "c1", name="follower", subresource="token"
    )
    identity = GrpcIdentity(token=answer["status"]["token"])
    limits = ServiceLimits(recheck_seconds=0)
    async with (
        grpc_servers.running(fleet_connection, tmp_path, limits=limits) as server,
        calling(server, identity, "c1") as follower,
        follower.following(data_type(LEASES), {}) as events,
    ):
        await anext(aiter(events))
        await door.hub.delete(SERVICE_ACCOUNTS, Key("c1", "follower"))

        async def read() -> None:
            async for _ in events:
                continue

        reading = asyncio.ensure_future(read())

        async def is_over() -> bool:
            # Each event has it checked again; that the token is good is remembered for seconds.
            patch = {"metadata": {"annotations": {"now": str(asyncio.get_running_loop().time())}}}
            await door.hub.patch(LEASES, Key("c1", LEASE_NAME), patch)
            return reading.done()

        await until(is_over, "the subscription is over")
        with pytest.raises(Forbidden, match="neither a valid token"):
            await reading


async def test_the_annotation_of_the_server_is_forbidden_to_everybody_else(
    door: Door, bootstrap: Connection
):
    me = agent_user("c1", "a1")
    asked = request("c1", me, [f"{GROUP_PREFIX}c1", MANAGED_CLUSTERS], annotations={CSR_USER: me})
    async with Client(bootstrap) as asking:
        with pytest.raises(Forbidden, match="only the gRPC server sets"):
            await asking.create(CSRS, asked)
        del asked["metadata"]["annotations"]
        await asking.create(CSRS, asked)
    patch = {"metadata": {"annotations": {CSR_USER: me}}}
    with pytest.raises(Forbidden, match="only the gRPC server sets"):
        await door.hub.patch(CSRS, Key("", "c1-x"), patch)
    await door.hub.delete(CSRS, Key("", "c1-x"))


async def test_giant_messages_and_too_many_streams_are_refused_and_others_go_on(door: Door):
    identity = door.maker.identity("c1")
    async with calling(door.server, identity) as agent, calling(door.server, identity) as other:
        channel = agent.current()
        with pytest.raises(grpc.RpcError) as caught:
            await channel.unary_unary(PUBLISH)(b"x" * (5 * 2**20), timeout=PATIENCE_SECONDS)
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

        held = [agent.following(BUNDLES, {}) for _ in range(STREAMS)]
        for each in held:
            await each.__aenter__()
        assert "too many" in await subscription_refusal(agent, BUNDLES)
        for each in held:
            await each.__aexit__(None, None, None)

        async def is_free() -> bool:
            return await subscription_refusal(other, BUNDLES) == ""

        await until(is_free, "another stream may be opened")


async def test_a_connection_without_a_certificate_may_not_send_much(door: Door):
    context = ssl.create_default_context(cadata=door.server.ca.decode())
    context.set_alpn_protocols(["h2"])
    host, _, port = door.server.url.partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    sent = 0
    while sent < 16 * 2**20 and not writer.transport.is_closing():
        writer.write(b"\0" * 16_000)
        with suppress(OSError):
            await writer.drain()
        sent += 16_000
        await asyncio.sleep(0)
    writer.transport.abort()
    assert sent < 16 * 2**20
    async with calling(door.server, door.maker.identity("c1")) as agent:
        assert await subscription_refusal(agent, BUNDLES) == ""


async def test_a_cluster_that_is_denied_is_cut_off(door: Door):
    async with (
        calling(door.server, door.maker.identity("c2"), "c2") as agent,
        agent.following(data_type(LEASES), {}) as events,
    ):
        await anext(aiter(events))
        await door.hub.patch(CLUSTERS, Key("", "c2"), {"spec": {"hubAcceptsClient": False}})
        with pytest.raises(Forbidden, match="not accepted any more"):
            assert [each async for each in events]
    await door.hub.patch(CLUSTERS, Key("", "c2"), {"spec": {"hubAcceptsClient": True}})


async def test_the_secret_of_a_token_is_written_for_the_own_cluster(door: Door):
    manifest = {**named(ACCESS_SECRET, "c1"), "data": {"token": "eA=="}}
    async with calling(door.server, door.maker.identity("c1")) as agent:
        assert await refusal(agent, event_of(ACCESS_TOKENS, UPDATE, manifest)) == ""
    assert (await door.hub.get(SECRETS, ACCESS_SECRET, "c1"))["data"]["token"] == "eA=="


async def test_the_status_of_an_add_on_is_written_for_the_own_cluster(door: Door):
    meta = {"name": "proxy", "namespace": "c1"}
    manifest = {"apiVersion": ADDONS.api_version, "kind": ADDONS.kind}
    made = await door.hub.create(ADDONS, {**manifest, "metadata": meta, "spec": {}})
    status = {"namespace": "somewhere"}
    async with calling(door.server, door.maker.identity("c1")) as agent:
        event = event_of(ADDONS, UPDATE, {**made, "status": status}, part=STATUS)
        assert await refusal(agent, event) == ""

    found = await door.hub.get(ADDONS, "proxy", "c1")
    assert found["status"]["namespace"] == "somewhere"
    await door.hub.delete(ADDONS, Key("c1", "proxy"))


async def token_account(door: Door) -> None:
    """Make what the hub makes for an add-on whose agent reaches it by tokens."""
    meta = {"name": "hello", "namespace": "c1"}
    manifest = {"apiVersion": ADDONS.api_version, "kind": ADDONS.kind}
    made = await door.hub.create(ADDONS, {**manifest, "metadata": meta, "spec": {}})
    for each in token_infrastructure(decode(made, ManagedClusterAddOn)):
        resource = await door.hub.discovery.resource(each["apiVersion"], each["kind"])
        await door.hub.create(resource, each)
    caller = Caller(agent_user("c1", "a1"), (f"{GROUP_PREFIX}c1", MANAGED_CLUSTERS))
    needed = [
        Access("create", "", "serviceaccounts", "c1", "hello-agent", "token"),
        Access("subscribe", "", "serviceaccounts", "c1", subresource="token"),
    ]

    async def is_allowed() -> bool:
        answers = [await door.hub.create(REVIEWS, each.review(caller)) for each in needed]
        return all(each["status"]["allowed"] for each in answers)

    await until(is_allowed, "the agent may ask for tokens of the account")


def asked_token(identity: str, account: str = "hello-agent", namespace: str = "c1") -> Object:
    """A request for a token of an account."""
    meta = {"name": account, "namespace": namespace, "uid": identity}
    return {"metadata": meta, "spec": {"expirationSeconds": 600, "audiences": ["elsewhere"]}}


async def test_the_token_of_an_add_on_goes_to_the_caller_that_asked_for_it(door: Door):
    """For the API server, and for the account that the hub made, whoever else listens."""
    await token_account(door)
    mine = door.maker.identity("c1")
    beside = door.maker.identity("c1", user=agent_user("c1", "a2"))
    wanted = data_type(TOKEN_REQUESTS)
    async with (
        calling(door.server, mine) as agent,
        calling(door.server, beside) as neighbour,
        calling(door.server, door.maker.identity("c2"), "c2") as other,
        neighbour.following(wanted, None) as overheard,
        agent.following(wanted, None) as answers,
    ):
        for manifest, cluster in (
            (asked_token("u1"), "c2"),
            (asked_token("u1", namespace="c2"), "c2"),
            (asked_token("u1", "default"), "c1"),
        ):
            event = event_of(TOKEN_REQUESTS, CREATE, manifest, cluster=cluster)
            assert await refusal(other, event)
        for manifest in (
            asked_token("u1", "default"),
            asked_token("u1", namespace="c2"),
            asked_token("", "hello-agent"),
            asked_token("u" * 129),
            {**asked_token("u1"), "spec": {"expirationSeconds": "600"}},
        ):
            assert await refusal(agent, event_of(TOKEN_REQUESTS, CREATE, manifest))

        assert await refusal(agent, event_of(TOKEN_REQUESTS, CREATE, asked_token("u1"))) == ""

        event = await asyncio.wait_for(anext(answers), PATIENCE_SECONDS)
        assert isinstance(event, CloudEvent)
        found = read_object(event)
        assert found["metadata"] == {"name": "hello-agent", "namespace": "c1", "uid": "u1"}
        asked = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind}
        spec = {"token": found["status"]["token"]}
        review = await door.hub.create(TOKEN_REVIEWS, {**asked, "spec": spec})
        assert review["status"]["user"]["username"] == "system:serviceaccount:c1:hello-agent"

        assert await refusal(neighbour, event_of(TOKEN_REQUESTS, CREATE, asked_token("u2"))) == ""
        event = await asyncio.wait_for(anext(overheard), PATIENCE_SECONDS)
        assert isinstance(event, CloudEvent)
        assert read_object(event)["metadata"]["uid"] == "u2"
    async with calling(door.server, mine) as agent:
        event = event_of(TOKEN_REQUESTS, CREATE, asked_token("u3"))
        assert "there is no subscription" in await refusal(agent, event)


async def test_nobody_follows_the_tokens_of_another_cluster(door: Door):
    async with calling(door.server, door.maker.identity("c1"), "c2") as agent:
        assert await subscription_refusal(agent, data_type(TOKEN_REQUESTS))
    async with calling(door.server, door.maker.identity("c2"), "c2") as agent:
        # Until an add-on there needs tokens, its own agent does not either.
        assert "may not" in await subscription_refusal(agent, data_type(TOKEN_REQUESTS))
