"""A hub in this process, with no more rights than it gets from `init`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from knfleet.api.core import CRDS, SERVICE_ACCOUNTS
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Object
from knfleet.api.operator import BOOTSTRAP_ACCOUNT, CLUSTER_MANAGER, OPERATOR_NAMESPACE
from knfleet.hub.aws_account import HubAwsAccount
from knfleet.hub.context import Now
from knfleet.hub.manager import HubManager, HubOptions, start_hub
from knfleet.hub.tunnel.tunnel_server import TunnelOptions
from knfleet.install.hub_manifests import hub_objects
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.manager import Manager
from knfleet.runtime.metrics import Metrics
from knfleet.workflows.join_token import invite
from knfleet.workflows.object_lists import apply_all
from knfleet.workflows.policy_enforcement import enforced
from testbed.clusters import Lent, Pool
from testbed.reset import unchanged_definitions
from testbed.waiting import PATIENCE_SECONDS, until


async def install(admin: Connection) -> None:
    """Do what `init` does, but for the Deployment, and for CRDs that are there as it makes them."""
    async with Client(admin) as client:
        kept = await unchanged_definitions(client)
        wanted = [
            each
            for each in hub_objects()
            if each["kind"] != CRDS.kind or each["metadata"]["name"] not in kept
        ]
        await apply_all(client, wanted)
        made = await invite(client, admin.endpoint)
    async with Client(made.connection(admin)) as asking:
        await enforced(asking)


async def lend_hub(pool: Pool) -> Lent:
    """A cluster that is a hub and could be managed, without the hub's own pod."""
    (lent,) = await pool.lend(1)
    await install(lent.connection)
    async with Client(lent.connection) as client:
        for each in spoke_definitions():
            await client.apply(CRDS, each)
            await established(client, each["metadata"]["name"])
    return lent


async def lend_kept_hub(pool: Pool) -> Lent:
    """The same in a pool that lends nothing else; CRDs are there already but the first time."""
    lent = await lend_hub(pool)
    await pool.keep_definitions(lent.name)
    return lent


async def established(client: Client, name: str) -> None:
    """Return when the server serves a kind."""

    async def is_established() -> bool:
        crd: Object = await client.get(CRDS, name)
        said: list[Object] = crd.get("status", {}).get("conditions") or []
        return any(each["type"] == "Established" and each["status"] == "True" for each in said)

    await until(is_established, f"{name} is served")


async def as_account(
    admin: Connection, account: str, namespace: str = OPERATOR_NAMESPACE
) -> Connection:
    """The connection of a ServiceAccount, of the hub's namespace unless another is named."""
    asked: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    async with Client(admin) as client:
        answer = await client.create(
            SERVICE_ACCOUNTS, asked, namespace, name=account, subresource="token"
        )
    return with_token(admin, answer["status"]["token"])


def with_token(admin: Connection, token: str) -> Connection:
    """The same server for whoever has a token."""
    return replace(admin, credentials=StaticCredential(Credential(token=token)))


async def as_bootstrap(admin: Connection) -> Connection:
    """The connection of one who may ask to join."""
    return await as_account(admin, BOOTSTRAP_ACCOUNT)


@asynccontextmanager
async def running(
    admin: Connection,
    *users: str,
    ahead: timedelta = timedelta(0),
    now: Now | None = None,
    tunnel: TunnelOptions | None = None,
    webhook: ListenAddress | None = None,
    aws: HubAwsAccount | None = None,
    loopback_gates: bool = False,
) -> AsyncGenerator[HubManager, None]:
    """A hub that runs, perhaps with another clock; requests of the users need no person."""
    manager = Manager()
    async with Client(await as_account(admin, CLUSTER_MANAGER)) as client:
        options = HubOptions(
            auto_approved_users=frozenset(users),
            now=now or (lambda: datetime.now(UTC) + ahead),
            tunnel=tunnel,
            webhook=webhook,
            webhook_names=("localhost",),
            aws=aws,
            loopback_gates=loopback_gates,
        )
        fleet = start_hub(manager, client, metrics=Metrics(), options=options)
        task = asyncio.create_task(manager.run())
        try:
            await asyncio.wait_for(fleet.informers.synced(), PATIENCE_SECONDS)
            yield fleet
        finally:
            manager.stop()
            with suppress(asyncio.CancelledError):
                await task
