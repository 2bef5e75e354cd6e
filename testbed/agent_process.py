"""The agent as a process on a spoke, and what it needs to begin."""

import asyncio
import base64
import os
import signal
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from msgspec import Struct

from knfleet.agent.registration.identity import HubCredentials
from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.access import ACCESS_SECRET
from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    ManagedCluster,
)
from knfleet.api.conditions import find
from knfleet.api.core import NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import (
    AGENT_NAMESPACE,
    BOOTSTRAP_ACCOUNT,
    BOOTSTRAP_SECRET,
    HUB_SECRET,
    OPERATOR_NAMESPACE,
)
from knfleet.api.schema import decode
from knfleet.apply.manifest_fields import items, part
from knfleet.dev import pki
from knfleet.hub.registration.drivers.csr import approve
from knfleet.hub.registration.drivers.csr_rules import AgentCertificateRequest, examine
from knfleet.install.agent_manifests import AgentInstall, account_objects
from knfleet.install.hub_manifests import named
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Endpoint
from knfleet.operator.spoke_access.rights import SpokeRights
from testbed.clusters import Lent
from testbed.small_rights import small_rights
from testbed.waiting import PATIENCE_SECONDS, until


class Agent(Struct):
    """`knfleet agent` for one spoke, started as often as a test wants."""

    spoke: Lent
    folder: Path
    name: str = "c1"
    process: asyncio.subprocess.Process | None = None

    @property
    def bootstrap(self) -> Path:
        """The bootstrap kubeconfig."""
        return self.folder / "bootstrap.kubeconfig"

    @property
    def hub_folder(self) -> Path:
        """Where the agent puts the hub's kubeconfig."""
        return self.folder / "hub"

    async def start(self, *flags: str) -> None:
        """Start it, without waiting for anything."""
        inherited = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        with (self.folder / "agent.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(*self.spoke.entering, sys.executable, "-m", "knfleet", "agent"),
                *("--kubeconfig", str(self.spoke.kubeconfig), "--spoke-cluster-name", self.name),
                *("--bootstrap-kubeconfig", str(self.bootstrap), "--disable-leader-election"),
                *("--hub-kubeconfig-dir", str(self.hub_folder), *flags),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=inherited,
            )

    async def end(self, blow: signal.Signals = signal.SIGTERM) -> int:
        """End it, and wait until it has."""
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(blow)
        return await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)

    def said(self) -> str:
        """Everything that it logged."""
        return (self.folder / "agent.log").read_text()

    async def says(self, *words: str) -> None:
        """Wait until it has logged a line with some words."""

        def holds() -> bool:
            lines = self.said().splitlines()
            return any(all(word in line for word in words) for line in lines)

        try:
            await until(holds, f"the agent logs {words}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it said\n{self.said()}") from None

    @property
    def memory(self) -> int:
        """Bytes of its own; how much of its libraries is mapped beside them is up to the kernel."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (each for each in status.splitlines() if each.startswith("RssAnon:"))
        return int(line.split()[1]) * 1024

    def point_to(self, endpoint: Endpoint, token: str) -> None:
        """Write the bootstrap kubeconfig."""
        self.bootstrap.write_bytes(kubeconfig(endpoint, token))
        self.bootstrap.chmod(0o600)


def kubeconfig(endpoint: Endpoint, token: str) -> bytes:
    """A bootstrap kubeconfig."""
    cluster: Object = {"server": endpoint.server}
    if endpoint.ca:
        cluster["certificate-authority-data"] = base64.b64encode(endpoint.ca).decode()
    if endpoint.proxy_url:
        cluster["proxy-url"] = endpoint.proxy_url
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bootstrap",
            "clusters": [{"name": "hub", "cluster": cluster}],
            "users": [{"name": "bootstrap", "user": {"token": token}}],
            "contexts": [{"name": "bootstrap", "context": {"cluster": "hub", "user": "bootstrap"}}],
        }
    )


def bootstrap_secret(config: bytes) -> Object:
    """The Secret that tells an agent of its hub."""
    made = named("v1", "Secret", BOOTSTRAP_SECRET, AGENT_NAMESPACE)
    return {**made, "data": {"kubeconfig": base64.b64encode(config).decode()}}


async def bootstrap_token(hub: Client) -> str:
    """A token of the account that may ask to join."""
    asked: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    answer = await hub.create(
        SERVICE_ACCOUNTS, asked, OPERATOR_NAMESPACE, name=BOOTSTRAP_ACCOUNT, subresource="token"
    )
    return answer["status"]["token"]


async def prepare_spoke(spoke: Client, rights: SpokeRights | None = None) -> None:
    """Make what `join` makes for an agent that runs outside of the cluster.

    The hub gets the rights for the small release, unless there are others.
    """
    meta = {"name": AGENT_NAMESPACE}
    await spoke.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    given = rights or await small_rights()
    plan = AgentInstall(cluster="c1", bootstrap=b"", image="", rights=given)
    for each in account_objects(plan):
        resource = await spoke.discovery.resource(each["apiVersion"], each["kind"])
        await spoke.apply(resource, each)


async def cluster_of(hub: Client, name: str = "c1") -> ManagedCluster:
    """A ManagedCluster as it is."""
    return decode(await hub.get(CLUSTERS, name), ManagedCluster)


async def condition(hub: Client, type_: str, status: str, *, name: str = "c1") -> str:
    """Wait for a condition of a cluster; its message."""
    message = ""

    async def holds() -> bool:
        nonlocal message
        found = find((await cluster_of(hub, name)).status.conditions, type_)
        message = "" if found is None else found.message
        return found is not None and found.status == status

    await until(holds, f"{type_} of {name} is {status}")
    return message


async def hub_secret(spoke: Client) -> dict[str, bytes]:
    """What the agent keeps, by key."""
    secret = await spoke.get(SECRETS, HUB_SECRET, AGENT_NAMESPACE)
    return {name: base64.b64decode(text) for name, text in part(secret, "data").items()}


async def remove_hub_secret(spoke: Client) -> None:
    """Delete what the agent keeps."""
    await spoke.delete(SECRETS, Key(AGENT_NAMESPACE, HUB_SECRET))


def lasting(
    hub: Lent, held: HubCredentials, lifetime: timedelta, *, age: timedelta = timedelta(0)
) -> bytes:
    """A certificate for an agent's key that lasts only so long from now, and has that age."""
    authority = pki.CertificateAuthority.load(hub.folder.pki(hub.name), "ca")
    old = x509.load_pem_x509_certificate(held.certificate)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(authority.certificate.subject)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - age)
        .not_valid_after(now + lifetime)
        .add_extension(
            x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .sign(authority.key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


class Scene(Struct):
    """A hub that runs, and a spoke with an agent that does not yet."""

    hub: Client
    hub_lent: Lent
    spoke: Client
    agent: Agent
    running: AsyncExitStack

    async def joined(self) -> None:
        """Start the agent, and have its cluster accepted and available."""
        await self.agent.start()
        await self.accept()
        await condition(self.hub, AVAILABLE, "True")

    async def handed_over(self) -> dict[str, str]:
        """What the agent handed to the hub."""
        found = await self.hub.list(SECRETS, "c1", fields=f"metadata.name={ACCESS_SECRET}")
        return (found.items[0].get("data") or {}) if found.items else {}

    async def handed(self) -> bool:
        """Whether the agent handed something to the hub."""
        return "token" in await self.handed_over()

    async def pending(self, name: str = "c1") -> list[Object]:
        """Requests of a cluster that nobody answered."""
        found = await self.hub.list(CSRS, labels=f"{CLUSTER_NAME_LABEL}={name}")
        return [each for each in found.items if not items(each, "status", "conditions")]

    async def accept(self, name: str = "c1") -> Object:
        """Do what a person does who accepts a cluster; the request that was approved."""

        async def asked() -> bool:
            return bool(await self.pending(name))

        await until(asked, f"{name} asks for a certificate: {self.agent.said()}")
        (request,) = await self.pending(name)
        assert isinstance(examine(request), AgentCertificateRequest), examine(request)
        await approve(self.hub, request, reason="Test", message="by a test")
        await self.hub.patch(CLUSTERS, Key("", name), {"spec": {"hubAcceptsClient": True}})
        return request
