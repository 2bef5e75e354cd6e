"""An account that may do some things: exactly what it lacks is named."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from knfleet.api.core import CLUSTER_ROLES, CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from knfleet.api.meta import Object
from knfleet.apply.change_set import FailureKind, MissingRight
from knfleet.apply.engine import Engine
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from tests.server.apply.conftest import QUICK, Bench
from tests.support.objects import SET, cluster_role, config_map, deployment, manifest, service

ALL = ["create", "delete", "get", "list", "patch", "watch"]


def rules(**verbs: list[str]) -> list[Object]:
    """Rules for core resources."""
    return [
        {"apiGroups": [""], "resources": [plural], "verbs": allowed}
        for plural, allowed in verbs.items()
    ]


@asynccontextmanager
async def account(bench: Bench, name: str, allowed: list[Object]) -> AsyncGenerator[Client]:
    """A client of a new account that has some rights in its namespace."""
    await bench.client.create(SERVICE_ACCOUNTS, manifest(SERVICE_ACCOUNTS, name))
    await bench.client.create(ROLES, manifest(ROLES, name, rules=allowed))
    binding = manifest(
        ROLE_BINDINGS,
        name,
        roleRef={"apiGroup": ROLES.group, "kind": "Role", "name": name},
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": "home"}],
    )
    await bench.client.create(ROLE_BINDINGS, binding)
    request: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await bench.client.create(
        SERVICE_ACCOUNTS, request, "home", name=name, subresource="token"
    )
    token = StaticCredential(Credential(token=answer["status"]["token"]))
    connection = Connection(bench.connection.cluster, bench.connection.endpoint, token)
    async with Client(connection) as client:
        yield client


@pytest.fixture
async def limited(bench: Bench) -> AsyncIterator[Client]:
    """A client of an account with all rights on ConfigMaps, and some on Services."""
    allowed = rules(configmaps=ALL, services=["list", "create", "delete", "watch"])
    async with account(bench, "limited", allowed) as client:
        yield client


async def test_exactly_the_missing_rights_are_named(bench: Bench, limited: Client) -> None:
    """All of them at once, and what is allowed is done."""
    engine = Engine(limited, SET, deadlines=QUICK)

    changes = await engine.apply([config_map("c"), service("s"), deployment("d")])

    assert [ref.name for ref in changes.created] == ["c"]
    assert {failure.ref.kind for failure in changes.failures} == {"Deployment", "Service"}
    assert {failure.why for failure in changes.failures} == {FailureKind.FORBIDDEN}
    assert changes.denials == [
        *(
            MissingRight("deployments", "apps", verb, "home")
            for verb in ("create", "delete", "list", "patch", "watch")
        ),
        MissingRight("services", "", "patch", "home"),
    ]

    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    await bench.client.apply(ROLES, manifest(ROLES, "limited", rules=[every]))
    assert (await engine.apply([config_map("c"), service("s"), deployment("d")])).settled


async def test_a_role_that_gives_more_than_we_have_is_an_escalation(
    bench: Bench, limited: Client
) -> None:
    """The server's words list what is not held; that is no missing right on roles."""
    everything = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]
    await bench.client.create(CLUSTER_ROLES, cluster_role("admin-roles", rules=[
        {"apiGroups": [CLUSTER_ROLES.group], "resources": ["clusterroles"], "verbs": ALL}
    ]))  # fmt: skip
    binding = manifest(
        CLUSTER_ROLES,
        "limited",
        roleRef={"apiGroup": ROLES.group, "kind": "ClusterRole", "name": "admin-roles"},
        subjects=[{"kind": "ServiceAccount", "name": "limited", "namespace": "home"}],
    )
    binding["kind"] = "ClusterRoleBinding"
    resource = await bench.client.discovery.resource(CLUSTER_ROLES.api_version, binding["kind"])
    await bench.client.create(resource, binding)

    changes = await Engine(limited, SET, deadlines=QUICK).apply(
        [cluster_role("strong", rules=everything), config_map("c")]
    )

    (failure,) = changes.failures
    assert failure.why == FailureKind.ESCALATION
    assert "not currently held" in failure.message
    assert changes.denials == []
    assert await bench.exists(CONFIG_MAPS, "c")
