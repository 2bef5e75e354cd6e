"""What a thief of the hub's own token cannot do, although its roles would let him."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from knfleet.api.certificate_requests import CERTIFICATES_GROUP, CSRS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, SECRETS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import (
    AUTO_APPROVAL_GATE,
    BOOTSTRAP_ACCOUNT,
    CLUSTER_MANAGER,
    CLUSTER_MANAGERS,
    OPERATOR_NAMESPACE,
)
from knfleet.api.rbac_rules import RBAC_GROUP, cluster_role
from knfleet.hub.profiles.profile_namespaces import token_binding
from knfleet.hub.profiles.rights import TOKENS_ROLE
from knfleet.hub.registration.drivers.csr import approve, concluded
from knfleet.install.deployments import HubInstall, cluster_manager
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden
from testbed import hubs
from testbed.waiting import until
from tests.support.registration import Agent, csr, request_pem

USER: Object = {"apiGroup": RBAC_GROUP, "kind": "User", "name": "somebody"}
PLAN = HubInstall(image="", feature_gates=((AUTO_APPROVAL_GATE, True),))
ASKING = "asks-to-join"


@pytest.fixture
async def hub_account(fleet: Client, fleet_connection: Connection) -> AsyncIterator[Client]:
    """One who has the hub's token, on a hub with the ClusterManager that `init` makes."""
    await fleet.apply(CLUSTER_MANAGERS, cluster_manager(PLAN))
    async with Client(await hubs.as_account(fleet_connection, CLUSTER_MANAGER)) as client:
        yield client


def component(cluster: str = "thief", **spec: Any) -> Object:
    """A request for the certificate of kube-controller-manager, dressed as one of an agent."""
    key = ec.generate_private_key(ec.SECP256R1())
    return csr(cluster, request_pem(key, "system:kube-controller-manager", []), **spec)


async def approved(hub: Client, made: Object) -> bool:
    """Whether the hub's account can approve a request."""
    await approve(hub, await hub.get(CSRS, made["metadata"]["name"]), reason="T", message="t")
    return concluded(await hub.get(CSRS, made["metadata"]["name"])) == "Approved"


async def trial(hub: Client, made: Object) -> Object:
    """Approve a request without writing."""
    status = {"conditions": [{"type": "Approved", "status": "True", "reason": "T", "message": "t"}]}
    key = Key("", made["metadata"]["name"])
    return await hub.patch(CSRS, key, {"status": status}, subresource="approval", dry_run=True)


async def is_denied(
    attempt: Callable[[], Awaitable[Object]], what: str, *, by: str = "knfleet-hub"
) -> None:
    """Return when a policy denies an attempt, which writes nothing.

    The API server takes up roles and policies a moment after they are written, each for itself.
    """

    async def by_policy() -> bool:
        try:
            await attempt()
        except Forbidden as error:
            return by in str(error)
        return False

    await until(by_policy, f"a policy denies {what}")


async def test_the_hubs_account_binds_nobody_to_secrets_everywhere(hub_account: Client):
    """Nor somewhere by another name: only where a set of clusters is bound."""
    everywhere = token_binding("default", USER)
    everywhere |= {"kind": "ClusterRoleBinding", "metadata": {"name": TOKENS_ROLE}}
    other = {**everywhere, "metadata": {"name": "other"}}
    for each in (everywhere, other):
        attempt = partial(hub_account.create, CLUSTER_ROLE_BINDINGS, each, dry_run=True)
        await is_denied(attempt, "a binding everywhere", by="knfleet-profile-tokens")
    here = token_binding("default", USER)
    here["metadata"]["name"] = "other"
    attempt = partial(hub_account.create, ROLE_BINDINGS, here, dry_run=True)
    await is_denied(attempt, "a binding of another name", by="knfleet-profile-tokens")


async def test_the_hubs_account_gets_no_certificate_of_another(
    fleet: Client, hub_account: Client, bootstrap: Connection
):
    """It asks for none, makes no token to ask with, and approves none but those of agents."""
    await is_denied(lambda: hub_account.create(CSRS, component(), dry_run=True), "a request")
    # Where it may write Secrets at all.
    subject = {"kind": "ServiceAccount", "name": CLUSTER_MANAGER, "namespace": OPERATOR_NAMESPACE}
    await fleet.apply(ROLE_BINDINGS, token_binding(OPERATOR_NAMESPACE, subject))
    account = {"kubernetes.io/service-account.name": BOOTSTRAP_ACCOUNT}
    for type_ in ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"):
        meta = {"name": "minted", "annotations": account}
        minted = {"apiVersion": "v1", "kind": "Secret", "type": type_, "metadata": meta}
        await is_denied(
            partial(hub_account.create, SECRETS, minted, OPERATOR_NAMESPACE, dry_run=True), type_
        )

    by_another = await fleet.create(CSRS, component())
    await is_denied(lambda: trial(hub_account, by_another), "approval of a stranger's request")
    unlabelled = component()
    del unlabelled["metadata"]["labels"]
    async with Client(bootstrap) as asking:
        made = await asking.create(CSRS, unlabelled)
    await is_denied(lambda: trial(hub_account, made), "approval of a request without labels")
    assert concluded(await fleet.get(CSRS, by_another["metadata"]["name"])) == ""


async def test_an_agent_asks_only_for_its_own_cluster(
    fleet: Client, hub_account: Client, fleet_connection: Connection, bootstrap: Connection
):
    """The hub's account approves what an agent asks for only by the name of its cluster."""
    agent = Agent(bootstrap, "asks-itself")
    async with hubs.running(fleet_connection):
        connection = await agent.join(fleet)
    async with Client(connection) as own:
        mine = await own.create(CSRS, csr("asks-itself", agent.pem))
        other = await own.create(CSRS, csr("asks-other", agent.pem))
    with pytest.raises(Forbidden, match="knfleet-hub"):
        await approved(hub_account, other)
    assert await approved(hub_account, mine)


async def test_who_needs_no_person_is_what_the_clustermanager_says(
    fleet: Client, hub_account: Client, fleet_connection: Connection
):
    """Others may be named there than the accounts that every hub knows; the rules follow."""
    name = "system:serviceaccount:default:default"
    rules = [
        {"apiGroups": [CERTIFICATES_GROUP], "resources": [CSRS.plural], "verbs": ["create", "get"]},
        {"apiGroups": [CLUSTERS.group], "resources": [CLUSTERS.plural], "verbs": ["create"]},
    ]
    await fleet.apply(CLUSTER_ROLES, cluster_role(ASKING, rules))
    await fleet.apply(
        CLUSTER_ROLE_BINDINGS,
        {
            "apiVersion": f"{RBAC_GROUP}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ASKING},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": ASKING},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        },
    )
    agent = Agent(await hubs.as_account(fleet_connection, "default", "default"), "named")
    await agent.introduce()
    request = await agent.ask()
    with pytest.raises(Forbidden, match="by the ClusterManager"):
        await approved(hub_account, await fleet.get(CSRS, request))
    named = replace(PLAN, auto_approved=(name,))
    await fleet.apply(CLUSTER_MANAGERS, cluster_manager(named))
    async with hubs.running(fleet_connection):
        await agent.fetch(request)
