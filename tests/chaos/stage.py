"""A hub, spokes and two operators, each known to every API server by an account of its own.

The operators reach the hub, and all spokes, by ways that can be struck; whoever judges reaches them
directly, as an administrator.
"""

import asyncio
import base64
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from knfleet.api.core import CLUSTER_ROLE_BINDINGS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.inventory import PROFILES
from knfleet.api.meta import Key, Object
from knfleet.dev.control_plane import audit_log
from knfleet.dev.dev_folder import write_private
from knfleet.dev.manual_profiles import FLEET, PROVIDER, manifest, profile_status
from knfleet.kube.client.verbs import Client, ClientOptions
from testbed.clusters import Lent, Pool
from testbed.fakes.ways import Way
from testbed.operators import Hub
from tests.chaos import foreign, operators
from tests.chaos.audit import Log, policy
from tests.chaos.evidence import Evidence
from tests.chaos.operators import SYSTEM_NAMESPACE, Replica
from tests.chaos.resources import Wanted, wanted

ACCOUNTS = "chaos"
"""The namespace of the operators' accounts, on every cluster."""
REPLICAS = ("operator-a", "operator-b")
GROUP = f"system:serviceaccounts:{ACCOUNTS}"
TOKEN_SECONDS = 4 * 3600
BY_HAND = ClientOptions(manager="by-hand")


class Spoke:
    """A spoke, and the operators' way to it."""

    def __init__(self, lent: Lent, client: Client, way: Way) -> None:
        self.name = lent.name
        self.lent = lent
        self.client = client
        self.way = way


class Stage:
    """Everything that faults can strike, and all that was seen."""

    def __init__(self, pool: Pool, hub: Hub, releases: Path) -> None:
        self.pool = pool
        self.hub = hub
        self.releases = releases
        self.spokes: dict[str, Spoke] = {}
        self.replicas: dict[str, Replica] = {}
        self.wanted: dict[str, Wanted] = {}
        self.locks: dict[str, asyncio.Lock] = {}
        """Held while somebody changes a custom resource, which may take a while."""
        self.struck: list[str] = []
        """Where faults are lasting: spokes, the hub, the leader."""
        self.evidence = Evidence()
        self.logs: list[Log] = []

    @property
    def leader(self) -> Replica:
        """Who holds the Lease, or would be the next to."""
        held = self.evidence.taken[-1] if self.evidence.taken else None
        return self.replicas[held.user if held is not None else REPLICAS[0]]

    def is_calm(self, spoke: str) -> bool:
        """Whether nothing is done to a spoke, nor to those who look after it."""
        return not any(each == spoke or each not in self.spokes for each in self.struck)

    def client(self, cluster: str) -> Client:
        """The administrator's client of a cluster."""
        return self.spokes[cluster].client if cluster in self.spokes else self.hub.client


@asynccontextmanager
async def stage(root: Path, releases: Path, *, spokes: int) -> AsyncGenerator[Stage]:
    """Fresh clusters, registered and with foreign objects; the operators are not started."""
    pool = Pool(root / "ground")
    try:
        pool.ground.audit_policy = policy(GROUP)
        first, *others = await pool.lend(spokes + 1)
        async with AsyncExitStack() as closing:
            client = await closing.enter_async_context(Client(first.connection, BY_HAND))
            made = Stage(pool, Hub(first, client), releases)
            await made.hub.prepare()
            for namespace in (FLEET, SYSTEM_NAMESPACE, *REPLICAS):
                await client.apply(NAMESPACES, manifest("v1", "Namespace", Key("", namespace)))
            await enrol(made, closing)
            await asyncio.gather(*(join(made, each, closing) for each in others))
            made.wanted = {each.title: each for each in wanted(sorted(made.spokes))}
            made.locks = {title: asyncio.Lock() for title in made.wanted}
            made.logs = logs(made, [first, *others])
            yield made
    finally:
        await asyncio.to_thread(pool.close)


def logs(made: Stage, lents: Sequence[Lent]) -> list[Log]:
    """The audit logs; the hub's last, so that it is never older than what it is compared with."""
    folder = made.pool.folder
    return [Log(each.name, audit_log(folder, each.name)) for each in reversed(lents)]


async def enrol(made: Stage, closing: AsyncExitStack) -> None:
    """Give each operator an account on the hub, and a way to it."""
    lent = made.hub.lent
    await foreign.place(made.hub.client)
    tokens = await accounts(made.hub.client)
    for name in REPLICAS:
        way = await closing.enter_async_context(Way(lent.connection.endpoint.server))
        home = lent.folder.cluster(lent.name)
        kubeconfig, providers = home / f"{name}.kubeconfig", home / f"{name}.providers.json"
        access = login(way.url, lent.connection.endpoint.ca or b"", tokens[name], name)
        write_private(kubeconfig, msgspec.json.encode(access))
        entry = provider(kubeconfig, name)
        write_private(providers, msgspec.json.encode({"providers": [entry]}))
        command = operators.command(kubeconfig, providers, made.releases)
        made.replicas[name] = Replica(name, lent.folder, way, command)


def login(server: str, ca: bytes, token: str, namespace: str) -> Object:
    """A kubeconfig that connects with a token; Secrets are looked for in a namespace."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()}
    context = {"cluster": "hub", "user": "operator", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "hub",
        "contexts": [{"name": "hub", "context": context}],
        "clusters": [{"name": "hub", "cluster": cluster}],
        "users": [{"name": "operator", "user": {"token": token}}],
    }


def provider(kubeconfig: Path, namespace: str) -> Object:
    """The entry of a provider file that reads tokens from Secrets of a namespace on the hub."""
    env = {"KUBECONFIG": str(kubeconfig), "KNFLEET_SECRET_NAMESPACES": namespace}
    return {
        "name": PROVIDER,
        "execConfig": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(Path(sys.executable).with_name("secretreader-plugin")),
            "env": [{"name": name, "value": value} for name, value in env.items()],
            "provideClusterInfo": True,
        },
    }


async def accounts(client: Client) -> dict[str, str]:
    """Make the operators' accounts on a cluster; a token of each."""
    await client.apply(NAMESPACES, manifest("v1", "Namespace", Key("", ACCOUNTS)))
    tokens: dict[str, str] = {}
    for name in REPLICAS:
        account = Key(ACCOUNTS, name)
        await client.apply(SERVICE_ACCOUNTS, manifest("v1", "ServiceAccount", account))
        binding = manifest(CLUSTER_ROLE_BINDINGS.api_version, "ClusterRoleBinding", Key("", name))
        binding["roleRef"] = {
            "apiGroup": CLUSTER_ROLE_BINDINGS.group,
            "kind": "ClusterRole",
            "name": "cluster-admin",
        }
        subject = {"kind": "ServiceAccount", "name": name, "namespace": ACCOUNTS}
        await client.apply(CLUSTER_ROLE_BINDINGS, binding | {"subjects": [subject]})
        asked: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        answer = await client.create(
            SERVICE_ACCOUNTS, asked, ACCOUNTS, name=name, subresource="token"
        )
        tokens[name] = answer["status"]["token"]
    return tokens


async def hand_out(made: Stage, spoke: str, client: Client) -> None:
    """Give each operator a new token for a spoke, in the Secret that its plugin reads."""
    tokens = await accounts(client)
    for name, token in tokens.items():
        secret = manifest("v1", "Secret", Key(name, spoke)) | {"stringData": {"token": token}}
        await made.hub.client.apply(SECRETS, secret)


async def join(made: Stage, lent: Lent, closing: AsyncExitStack) -> None:
    """Register a spoke on the hub, at the near end of a way."""
    client = await closing.enter_async_context(Client(lent.connection, BY_HAND))
    way = await closing.enter_async_context(Way(lent.connection.endpoint.server))
    await foreign.place(client)
    await hand_out(made, lent.name, client)
    key = Key(FLEET, lent.name)
    profile = manifest(PROFILES.api_version, PROFILES.kind, key)
    profile["spec"] = {"displayName": lent.name, "clusterManager": {"name": "chaos"}}
    await made.hub.client.apply(PROFILES, profile)
    status = profile_status(lent.name, way.url, lent.connection.endpoint.ca or b"")
    await made.hub.client.patch(PROFILES, key, {"status": status}, subresource="status")
    made.spokes[lent.name] = Spoke(lent, client, way)
