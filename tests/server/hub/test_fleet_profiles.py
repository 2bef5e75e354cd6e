"""ClusterProfiles with access, as agents hand it over, on a real hub."""

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from knfleet.api.cluster.clusterset import BINDINGS
from knfleet.api.cluster.managedcluster import CLUSTERS, SET_LABEL
from knfleet.api.core import NAMESPACES, ROLE_BINDINGS, SECRETS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.api.operator import CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.api.rbac_rules import RBAC_GROUP
from knfleet.hub.profiles.rights import TOKENS_ROLE
from knfleet.hub.registration.rbac import ACCESS_SECRET
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import ApiError, Forbidden, NotFound
from testbed import hubs
from testbed.waiting import until
from tests.support.registration import Agent, accept


def coded(text: str) -> str:
    """Text as a Secret has it."""
    return base64.b64encode(text.encode()).decode()


def handed(token: str, ca: bytes, *, hours: float = 1) -> Object:
    """What an agent hands over."""
    expires = timestamp(datetime.now(UTC) + timedelta(hours=hours))
    return {
        "data": {
            "token": coded(token),
            "server": coded("https://127.0.0.1:6443"),
            "ca.crt": base64.b64encode(ca).decode(),
            "expiration": coded(expires),
        }
    }


async def found(client: Client, namespace: str, name: str) -> Object:
    """A profile; empty when there is none."""
    try:
        return await client.get(PROFILES, name, namespace)
    except NotFound:
        return {}


async def token(client: Client, namespace: str, name: str) -> str:
    """The token beside a profile; empty when there is none."""
    try:
        secret = await client.get(SECRETS, name, namespace)
    except NotFound:
        return ""
    return base64.b64decode(secret["data"]["token"]).decode()


async def profile_when(
    client: Client, namespace: str, name: str, *, is_so: Callable[[Object], bool]
) -> Object:
    """A profile, once it is as it should be."""

    async def is_there() -> bool:
        return is_so(await found(client, namespace, name))

    await until(is_there, f"profile {namespace}/{name}")
    return await found(client, namespace, name)


def offers(profile: Object) -> bool:
    """Whether a profile offers access."""
    return bool(profile.get("status", {}).get("accessProviders"))


async def bind(client: Client, namespace: str, cluster_set: str) -> None:
    """Bind a set in a namespace, which is made for it."""
    await client.apply(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    binding = {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": cluster_set},
        "spec": {"clusterSet": cluster_set},
    }
    await client.create(BINDINGS, binding, namespace)


async def test_an_accepted_cluster_has_a_profile_with_access_wherever_its_set_is_bound(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """The token follows the agent's, comes back when it is removed, and goes with the binding."""
    agent, ca = Agent(bootstrap, "shown"), fleet_connection.endpoint.ca or b""
    async with hubs.running(fleet_connection), Client(await agent.join(fleet)) as own:
        await profile_when(fleet, OPERATOR_NAMESPACE, "shown", is_so=bool)
        await bind(fleet, "consumer", "default")
        early = await profile_when(fleet, "consumer", "shown", is_so=lambda p: "status" in p)
        assert {each["status"] for each in early["status"]["conditions"]} == {"Unknown"}
        assert not offers(early)

        claims = [{"name": "id.k8s.io", "value": "42"}]
        # The hub watches reports and Secrets apart: a profile may get either of them first.
        await agent.report(own, version={"kubernetes": "v1.35.0"}, clusterClaims=claims)
        await own.patch(SECRETS, Key("shown", ACCESS_SECRET), handed("first", ca))
        profile = await profile_when(
            fleet, "consumer", "shown", is_so=lambda p: offers(p) and "version" in p["status"]
        )
        assert profile["metadata"]["labels"] == {
            "x-k8s.io/cluster-manager": "open-cluster-management",
            "open-cluster-management.io/cluster-name": "shown",
            "multicluster.x-k8s.io/clusterset": "default",
        }
        status = profile["status"]
        assert status["version"] == {"kubernetes": "v1.35.0"}
        assert [(each["name"], each["value"]) for each in status["properties"]] == [
            ("id.k8s.io", "42")
        ]
        assert {each["type"]: each["status"] for each in status["conditions"]} == {
            "ControlPlaneHealthy": "True",
            "Joined": "True",
        }
        (offered,) = status["accessProviders"]
        assert offered["name"] == "secretreader"
        assert offered["cluster"]["server"] == "https://127.0.0.1:6443"
        trusted = base64.b64decode(offered["cluster"]["certificate-authority-data"])
        assert trusted.strip() == ca.strip()
        assert offered["cluster"]["extensions"] == [
            {
                "name": "client.authentication.k8s.io/exec",
                "extension": {"clusterName": "shown", "namespace": "consumer"},
            }
        ]

        async def is_token(text: str) -> bool:
            return await token(fleet, "consumer", "shown") == text

        await until(lambda: is_token("first"), "the token is copied")
        await own.patch(SECRETS, Key("shown", ACCESS_SECRET), handed("second", ca))
        await until(lambda: is_token("second"), "the new token is copied")
        await fleet.delete(SECRETS, Key("consumer", "shown"))
        await until(lambda: is_token("second"), "the token is back")
        await own.patch(SECRETS, Key("shown", ACCESS_SECRET), handed("old", ca, hours=-1))
        await until(lambda: is_token(""), "an expired token is gone")
        assert not offers(await found(fleet, "consumer", "shown"))
        await own.patch(SECRETS, Key("shown", ACCESS_SECRET), handed("third", ca))
        await until(lambda: is_token("third"), "and another is there")

        await fleet.delete(BINDINGS, Key("consumer", "default"))
        await profile_when(fleet, "consumer", "shown", is_so=lambda p: not p)
        await until(lambda: is_token(""), "the token is gone")

        async def has_no_right() -> bool:
            try:
                await fleet.get(ROLE_BINDINGS, TOKENS_ROLE, "consumer")
            except NotFound:
                return True
            return False

        await until(has_no_right, "the hub lost its right there")
        assert offers(await found(fleet, OPERATOR_NAMESPACE, "shown"))


async def test_profiles_follow_labels_denial_and_deletion(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    agent = Agent(bootstrap, "moves")
    async with hubs.running(fleet_connection):
        await agent.join(fleet)
        await bind(fleet, "only-default", "default")
        await profile_when(fleet, "only-default", "moves", is_so=bool)
        moved = {"metadata": {"labels": {SET_LABEL: "elsewhere"}}}
        await fleet.patch(CLUSTERS, Key("", "moves"), moved)
        await profile_when(fleet, "only-default", "moves", is_so=lambda p: not p)
        back = {"metadata": {"labels": {SET_LABEL: "default"}}}
        await fleet.patch(CLUSTERS, Key("", "moves"), back)
        await profile_when(fleet, "only-default", "moves", is_so=bool)
        await accept(fleet, "moves", value=False)
        await profile_when(fleet, "only-default", "moves", is_so=lambda p: not p)
        await accept(fleet, "moves")
        await profile_when(fleet, "only-default", "moves", is_so=bool)
        await fleet.delete(CLUSTERS, Key("", "moves"))
        await profile_when(fleet, "only-default", "moves", is_so=lambda p: not p)


async def test_what_others_made_is_left_alone(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
):
    """A profile by hand, and a Secret that only has the same name."""
    agent, ca = Agent(bootstrap, "mixed"), fleet_connection.endpoint.ca or b""
    other: Object = {
        "apiVersion": PROFILES.api_version,
        "kind": PROFILES.kind,
        "metadata": {"name": "mixed"},
        "spec": {"clusterManager": {"name": "by-hand"}},
    }
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mixed"}}
    async with hubs.running(fleet_connection), Client(await agent.join(fleet)) as own:
        await bind(fleet, "theirs", "global")
        await bind(fleet, "secretive", "global")
        await fleet.create(SECRETS, secret | {"stringData": {"token": "mine"}}, "secretive")
        await profile_when(fleet, "theirs", "mixed", is_so=bool)
        await fleet.delete(BINDINGS, Key("theirs", "global"))
        await profile_when(fleet, "theirs", "mixed", is_so=lambda p: not p)
        await fleet.create(PROFILES, other, "theirs")
        await bind(fleet, "theirs", "default")
        await own.patch(SECRETS, Key("mixed", ACCESS_SECRET), handed("ours", ca))
        await profile_when(fleet, "secretive", "mixed", is_so=offers)

        assert await token(fleet, "secretive", "mixed") == "mine"
        profile = await found(fleet, "theirs", "mixed")
        assert profile["spec"]["clusterManager"]["name"] == "by-hand"
        assert "status" not in profile


async def test_the_hub_touches_no_secrets_where_no_set_is_bound(
    fleet: Client, fleet_connection: Connection
):
    """Not even by giving itself the right to."""
    account = await hubs.as_account(fleet_connection, CLUSTER_MANAGER)
    binding: Object = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": TOKENS_ROLE, "namespace": "kube-system"},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": TOKENS_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": "x", "namespace": "default"}],
    }
    other = {**binding, "metadata": {"name": "other", "namespace": "kube-system"}}
    async with Client(account) as hub:
        with pytest.raises(Forbidden):
            await hub.list(SECRETS)
        with pytest.raises(Forbidden):
            await hub.list(SECRETS, "kube-system")
        for each in (binding, other):
            with pytest.raises(ApiError, match="knfleet-profile-tokens"):
                await hub.create(ROLE_BINDINGS, each)
        wide = {**binding["roleRef"], "name": "cluster-admin"}
        with pytest.raises(Forbidden):
            await hub.create(ROLE_BINDINGS, {**other, "roleRef": wide})
