"""Clusters join a real hub: requests, rights, denial; what one agent cannot do to another."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    AGENT_NAME,
    ALLOW_REREGISTRATION,
    AUTO_ACCEPTED,
    CLOCK_SYNCED,
    CLUSTERS,
    GROUP_PREFIX,
    JOINED,
    LEASE_NAME,
    MANAGED_CLUSTERS,
    REGISTER_GROUP,
    SET_LABEL,
    ManagedCluster,
    agent_user,
)
from knfleet.api.cluster.managedcluster import GROUP as CLUSTER_GROUP
from knfleet.api.core import LEASES, ROLE_BINDINGS, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object
from knfleet.api.schema import decode
from knfleet.api.work.manifestwork import WORKS
from knfleet.hub.registration.drivers.csr import CSRApprovalController, approve, concluded
from knfleet.hub.registration.drivers.csr_rules import NAME_TAKEN, examine
from knfleet.hub.registration.drivers.csr_rules import AgentCertificateRequest as Asked
from knfleet.hub.registration.lease import LeaseObservations
from knfleet.hub.registration.rbac import ACCESS_SECRET
from knfleet.kube.auth.x509 import fingerprint
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from knfleet.workflows import accept_clusters
from testbed import hubs
from testbed.waiting import until
from tests.support.registration import (
    DANGLING,
    Agent,
    accept,
    condition,
    csr,
    is_said,
    request_pem,
)
from tests.support.reviews import Right, rights

BOOTSTRAP = "system:serviceaccount:open-cluster-management:agent-registration-bootstrap"


async def annotation(client: Client, cluster: str, name: str) -> str:
    """An annotation of a cluster."""
    found = await client.get(CLUSTERS, cluster)
    return found["metadata"].get("annotations", {}).get(name, "")


async def refusal(attempt: Awaitable[object]) -> str:
    """Why the server refuses something; empty when it does not."""
    try:
        await attempt
    except (Forbidden, Invalid) as error:
        return error.message
    return ""


async def outcome(client: Client, request: str) -> str:
    """What became of a request."""
    return concluded(await client.get(CSRS, request))


async def decided(fleet: Client, request: str, what: str) -> None:
    """Return when a request is approved or denied."""

    async def is_so() -> bool:
        return await outcome(fleet, request) == what

    await until(is_so, f"{request} is {what}")


async def test_a_cluster_joins_and_renews_with_nothing_but_its_rights(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """The hub has only the role that `init` gives it, the agent only what the hub gives it."""
    agent = Agent(bootstrap, "joins")
    async with hubs.running(fleet_connection), Client(await agent.join(fleet)) as own:
        await agent.renew(own)
        await agent.report(own)
        renewal = await agent.ask(agent.connection)
        await decided(fleet, renewal, "Approved")

        assert await is_said(fleet, "joins", "ManagedClusterConditionAvailable", "True")
        found = await own.get(CLUSTERS, "joins")
        assert found["metadata"]["labels"][SET_LABEL] == "default"
        assert found["metadata"]["annotations"][AGENT_NAME] == "a1"
        assert (await own.get(SECRETS, ACCESS_SECRET, "joins")).get("data") is None


Attempt = Callable[[Client], Awaitable[object]]
OTHER = Key("", "theirs")
FORBIDDEN: dict[str, Attempt] = {
    "read a Lease": lambda own: own.get(LEASES, LEASE_NAME, "theirs"),
    "renew a Lease": lambda own: own.patch(LEASES, Key("theirs", LEASE_NAME), {"spec": {}}),
    "list works": lambda own: own.list(WORKS, "theirs"),
    "read the access": lambda own: own.get(SECRETS, ACCESS_SECRET, "theirs"),
    "list Secrets of its own": lambda own: own.list(SECRETS, "mine"),
    "read another cluster": lambda own: own.get(CLUSTERS, "theirs"),
    "relabel another cluster": lambda own: own.patch(
        CLUSTERS, OTHER, {"metadata": {"labels": {"a": "b"}}}
    ),
    "report for another": lambda own: own.patch(
        CLUSTERS, OTHER, {"status": {}}, subresource="status"
    ),
    "make another Lease": lambda own: own.create(
        LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}, "mine"
    ),
    "list all clusters": lambda own: own.list(CLUSTERS),
}
OTHER_ANNOTATION: Object = {"metadata": {"annotations": {"example.com/mine": "yes"}}}
REFUSED: dict[str, Object] = {
    "acceptance": {"spec": {"hubAcceptsClient": False}},
    "lease duration": {"spec": {"leaseDurationSeconds": 3600}},
    "taints": {"spec": {"taints": []}},
    "set": {"metadata": {"labels": {SET_LABEL: "other"}}},
    "finalizers": {"metadata": {"finalizers": []}},
    "owner": {"metadata": {"ownerReferences": [DANGLING]}},
    "annotations": {"metadata": {"annotations": {ALLOW_REREGISTRATION: "true"}}},
}


async def test_an_agent_can_do_nothing_to_another_and_little_to_itself(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """The rules hold although no hub runs while they are tried."""
    agent = Agent(bootstrap, "mine")
    async with hubs.running(fleet_connection):
        await Agent(bootstrap, "theirs").join(fleet)
        connection = await agent.join(fleet)
    async with Client(connection) as own:
        allowed = [what for what, attempt in FORBIDDEN.items() if not await refusal(attempt(own))]
        assert allowed == []
        # Nothing that is bound in the other's namespace, nor anything that is namespaced at all.
        there, anywhere = await rights(own, "theirs"), await rights(own, "default")
        assert there == anywhere
        groups = {CLUSTER_GROUP, REGISTER_GROUP, "certificates.k8s.io"}
        beyond = there - await rights_of_anybody(fleet_connection)
        assert {group for _, group, _, _ in beyond} == groups
        named = {name for _, group, _, name in beyond if group == CLUSTER_GROUP}
        assert named == {"mine"}
        me = Key("", "mine")
        said = {
            what: await refusal(own.patch(CLUSTERS, me, patch)) for what, patch in REFUSED.items()
        }
        words = ("an agent", "between sets", "managedclusters/accept")
        assert [what for what, why in said.items() if not any(w in why for w in words)] == []
        lie = {"type": ACCEPTED, "status": "True", "reason": "Me", "message": "I say so"}
        with pytest.raises((Forbidden, Invalid), match="only the hub"):
            await own.patch(
                CLUSTERS,
                Key("", "mine"),
                {"status": {"conditions": [lie]}},
                subresource="status",
            )

        changed = {"spec": {"managedClusterClientConfigs": [{"url": "https://there"}]}}
        await own.patch(CLUSTERS, Key("", "mine"), changed)


async def test_an_agent_stays_one_without_the_group_of_all_agents(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """It is told by its user name; and the hub does not renew a certificate without the group."""
    agent = Agent(bootstrap, "loner")
    alone = csr(
        "loner", request_pem(agent.key, agent_user("loner", "a1"), [f"{GROUP_PREFIX}loner"])
    )
    async with hubs.running(fleet_connection):
        connection = await agent.join(fleet)
        async with Client(connection) as own:
            renewal = (await own.create(CSRS, alone))["metadata"]["name"]
            await decided(fleet, await agent.ask(connection), "Approved")
        assert await outcome(fleet, renewal) == ""
    await approve(fleet, await fleet.get(CSRS, renewal), reason="Test", message="by mistake")
    async with Client(await agent.fetch(renewal)) as own:
        for what, patch in {**REFUSED, "other": OTHER_ANNOTATION}.items():
            said = await refusal(own.patch(CLUSTERS, Key("", "loner"), patch))
            assert said, what
        lie = {"type": ACCEPTED, "status": "True", "reason": "Me", "message": "I say so"}
        with pytest.raises(Forbidden, match="only the hub"):
            await own.patch(
                CLUSTERS, Key("", "loner"), {"status": {"conditions": [lie]}}, subresource="status"
            )


def without_zeros(value: Any) -> Any:
    """A value as a Go client writes what it read: fields with zero values are left out."""
    if isinstance(value, dict):
        fields = cast("Object", value)
        return {name: without_zeros(each) for name, each in fields.items() if each != 0}
    if isinstance(value, list):
        return [without_zeros(each) for each in cast("list[Any]", value)]
    return value


async def test_an_agent_writes_its_status_as_go_clients_do(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """The whole list of conditions, the hub's among them, without fields that are zero."""
    agent = Agent(bootstrap, "gopher")
    async with hubs.running(fleet_connection), Client(await agent.join(fleet)) as own:
        said = await condition(fleet, "gopher", ACCEPTED)
        assert without_zeros(said) == said
        # What releases before this one wrote.
        old = {**said, "observedGeneration": 0}
        patch = {"status": {"conditions": [old]}}
        await fleet.patch(CLUSTERS, Key("", "gopher"), patch, subresource="status")

        async def is_written() -> bool:
            found = without_zeros(await own.get(CLUSTERS, "gopher"))
            joined = {**said, "type": JOINED, "reason": "Joined", "message": "joined"}
            found["status"]["conditions"] = [*without_zeros([old]), joined]
            try:
                await own.replace(CLUSTERS, found, subresource="status")
            except Conflict:
                return False
            return True

        await until(is_written, "the status is written")
        assert await is_said(fleet, "gopher", JOINED, "True")


async def rights_of_anybody(admin: Connection) -> set[Right]:
    """What everybody may do who is somebody."""
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    async with Client(admin) as client:
        answer = await client.create(
            SERVICE_ACCOUNTS, asked, "default", name="default", subresource="token"
        )
    async with Client(hubs.with_token(admin, answer["status"]["token"])) as anybody:
        return await rights(anybody)


async def test_nobody_accepts_itself(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """Neither one who asks to join, nor one who was denied."""
    agent = Agent(bootstrap, "selfmade")
    with pytest.raises((Forbidden, Invalid), match="managedclusters/accept"):
        await agent.introduce(hubAcceptsClient=True)
    async with hubs.running(fleet_connection):
        connection = await agent.join(fleet)
        await accept(fleet, "selfmade", value=False)
        await until(lambda: is_said(fleet, "selfmade", ACCEPTED, "False"), "denied")
        async with Client(connection) as own:
            found = await own.get(CLUSTERS, "selfmade")
            with pytest.raises(ApiError):
                await accept(own, "selfmade")
            with pytest.raises(Forbidden):
                await agent.renew(own)

    assert found["spec"]["hubAcceptsClient"] is False


async def test_a_denied_cluster_keeps_its_works_rights_until_they_are_gone(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """And gets everything back when it is accepted again."""
    agent = Agent(bootstrap, "drains")
    binding = Key("drains", "open-cluster-management:managedcluster:drains:work")
    work = {"apiVersion": WORKS.api_version, "kind": WORKS.kind, "metadata": {"name": "w"}}
    async with hubs.running(fleet_connection), Client(await agent.join(fleet)) as own:
        await fleet.create(WORKS, work, "drains")
        await accept(fleet, "drains", value=False)
        await until(lambda: is_said(fleet, "drains", ACCEPTED, "False"), "denied")
        assert (await own.get(WORKS, "w", "drains"))["metadata"]["name"] == "w"
        with pytest.raises(Forbidden):
            await own.get(LEASES, LEASE_NAME, "drains")

        await fleet.delete(WORKS, Key("drains", "w"))

        async def is_gone() -> bool:
            try:
                await fleet.get(ROLE_BINDINGS, binding.name, binding.namespace)
            except NotFound:
                return True
            return False

        await until(is_gone, "the binding of works is gone")
        await accept(fleet, "drains")
        await until(lambda: is_said(fleet, "drains", ACCEPTED, "True"), "accepted")
        await agent.renew(own)


async def test_only_listed_identities_are_approved_and_accepted_without_a_person(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """And a denial by a person is not undone by the next request."""
    async with hubs.running(fleet_connection):
        waits = Agent(bootstrap, "unlisted")
        await waits.introduce()
        request = await waits.ask()
    async with hubs.running(fleet_connection, BOOTSTRAP):
        agent = Agent(bootstrap, "listed")
        await agent.introduce()
        await agent.fetch(await agent.ask())
        await decided(fleet, request, "Approved")
        await until(lambda: is_said(fleet, "listed", ACCEPTED, "True"), "accepted")
        assert await annotation(fleet, "listed", AUTO_ACCEPTED)

        await accept(fleet, "listed", value=False)
        await until(lambda: is_said(fleet, "listed", ACCEPTED, "False"), "denied")
        again = await agent.ask()
        control = Agent(bootstrap, "control")
        await control.introduce()
        await decided(fleet, await control.ask(), "Approved")

        assert await outcome(fleet, again) == ""
        assert (await fleet.get(CLUSTERS, "listed"))["spec"]["hubAcceptsClient"] is False


async def test_the_name_of_a_living_cluster_cannot_be_taken(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """Not even by an identity whose requests need no person; an administrator can allow it."""
    agent, thief = Agent(bootstrap, "taken"), Agent(bootstrap, "taken", "thief")
    async with (
        hubs.running(fleet_connection, BOOTSTRAP),
        Client(await agent.join(fleet)) as own,
    ):
        await agent.renew(own)
        await agent.report(own)

        async def is_recorded() -> bool:
            return await annotation(fleet, "taken", AGENT_NAME) == "a1"

        await until(is_recorded, "the agent is recorded")
        request = await thief.ask()
        await decided(fleet, request, "Denied")
        (said,) = (await fleet.get(CSRS, request))["status"]["conditions"]
        assert "choose another name" in said["message"]

        allowed = {"metadata": {"annotations": {ALLOW_REREGISTRATION: "true"}}}
        await fleet.patch(CLUSTERS, Key("", "taken"), allowed)
        await decided(fleet, await thief.ask(), "Approved")

        async def is_replaced() -> bool:
            return (
                await annotation(fleet, "taken", AGENT_NAME) == "thief"
                and await annotation(fleet, "taken", ALLOW_REREGISTRATION) == ""
            )

        await until(is_replaced, "the new agent is recorded")
        replaced = await agent.ask(agent.connection)
        control = Agent(bootstrap, "watched")
        await control.introduce()
        await decided(fleet, await control.ask(), "Approved")
        assert await outcome(fleet, replaced) == ""


async def test_a_hub_that_has_just_started_reads_the_lease_before_it_gives_a_name_away(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """It remembers no heartbeat, and a clock that is an hour behind does not make an agent dead."""
    agent, thief = Agent(bootstrap, "restarted"), Agent(bootstrap, "restarted", "thief")
    async with (
        hubs.running(fleet_connection, BOOTSTRAP) as running,
        Client(await agent.join(fleet)) as own,
    ):
        await agent.report(own)

        async def is_recorded() -> bool:
            return await annotation(fleet, "restarted", AGENT_NAME) == "a1"

        async def verdict() -> str:
            """What a hub says that has not looked at any cluster yet."""
            restarted = CSRApprovalController(
                replace(running.context, lease_observations=LeaseObservations())
            )
            manifest = await fleet.get(CSRS, request)
            asked = examine(manifest)
            assert isinstance(asked, Asked)
            known = decode(await fleet.get(CLUSTERS, "restarted"), ManagedCluster)
            return (await restarted.verdict(asked, manifest, known)).reason

        await until(is_recorded, "the agent is recorded")
        request = await thief.ask()
        await agent.renew(own)
        assert await verdict() == NAME_TAKEN

        await agent.renew(own, datetime.now(UTC) - timedelta(hours=1))
        await until(lambda: is_said(fleet, "restarted", CLOCK_SYNCED, "False"), "clock is off")
        assert await verdict() == NAME_TAKEN


async def test_forged_requests_stay_pending(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """Although the one who asks is listed; every forgery is one that the API server takes."""
    victim, agent = Agent(bootstrap, "victim"), Agent(bootstrap, "forger")
    own, all_ = f"{GROUP_PREFIX}forger", MANAGED_CLUSTERS
    name = agent_user("forger", "a1")

    def pem(common: str, *groups: str, names: bool = False) -> bytes:
        return request_pem(agent.key, common, list(groups), names=names)

    forged = [
        csr("forger", pem(name, all_)),
        csr("forger", pem(name, own, all_, "system:nodes")),
        csr("forger", pem(name, own, f"{GROUP_PREFIX}victim")),
        csr("forger", pem(agent_user("victim", "a1"), own, all_)),
        csr("forger", pem(f"{name}:x", own, all_)),
        csr("forger", pem("kubernetes-admin", own, all_)),
        csr("forger", pem(name, own, all_, names=True)),
        csr("victim", pem(name, own, all_)),
        csr("forger", pem(name, own, all_), usages=["client auth", "cert sign"]),
    ]
    behalf = csr("victim", victim.pem)
    behalf["metadata"]["annotations"] = {
        "open-cluster-management.io/csruser": agent_user("victim", "a1")
    }
    async with hubs.running(fleet_connection, BOOTSTRAP):
        await victim.join(fleet)
        connection = await agent.join(fleet)
        async with Client(bootstrap) as client:
            made = [await client.create(CSRS, each) for each in forged]
        async with Client(connection) as client:
            made.append(await client.create(CSRS, behalf))
            made.append(await client.create(CSRS, csr("victim", victim.pem)))
        control = Agent(bootstrap, "honest")
        await control.introduce()
        await decided(fleet, await control.ask(), "Approved")

        found = [await outcome(fleet, each["metadata"]["name"]) for each in made]
        assert found == [""] * len(made)


async def test_a_request_needs_its_cluster(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """It is looked at again when the cluster is there."""
    agent = Agent(bootstrap, "late")
    async with hubs.running(fleet_connection, BOOTSTRAP):
        request = await agent.ask()
        await agent.introduce()

        await decided(fleet, request, "Approved")


async def test_a_person_may_approve_before_the_hub_runs(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """Nothing of the API waits for the hub; it catches up."""
    agent = Agent(bootstrap, "early")
    await agent.introduce()
    request = await agent.ask()
    await approve(fleet, await fleet.get(CSRS, request), reason="Person", message="yes")
    await accept(fleet, "early")
    connection = await agent.fetch(request)
    async with hubs.running(fleet_connection):
        await until(lambda: is_said(fleet, "early", ACCEPTED, "True"), "accepted")
        async with Client(connection) as own:
            await agent.renew(own)


async def test_of_two_keys_a_person_lets_one_in(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """Nothing is approved before somebody chose, although both give the same agent's name."""
    agent, thief = Agent(bootstrap, "doubled"), Agent(bootstrap, "doubled")
    async with hubs.running(fleet_connection):
        await agent.introduce()
        requests = [await each.ask() for each in (agent, thief)]
        with pytest.raises(accept_clusters.NotAcceptable, match="several keys"):
            await accept_clusters.accept(fleet, "doubled")
        assert [await outcome(fleet, each) for each in requests] == ["", ""]

        for kept in ({}, {ALLOW_REREGISTRATION: "true"}):
            await fleet.patch(CLUSTERS, Key("", "doubled"), {"metadata": {"annotations": kept}})
            with pytest.raises(accept_clusters.NotAcceptable, match="several keys"):
                await accept_clusters.accept(
                    fleet, "doubled", accept_clusters.AcceptOptions(again=True)
                )
            # What failed leaves no door open; what a person set before stays.
            assert await annotation(fleet, "doubled", ALLOW_REREGISTRATION) == kept.get(
                ALLOW_REREGISTRATION, ""
            )

        chosen = accept_clusters.AcceptOptions(key=fingerprint(agent.key.public_key()))
        await accept_clusters.accept(fleet, "doubled", chosen)

        assert [await outcome(fleet, each) for each in requests] == ["Approved", ""]
        async with Client(await agent.fetch(requests[0])) as own:
            await until(lambda: is_said(fleet, "doubled", ACCEPTED, "True"), "accepted")
            await agent.renew(own)
