"""An agent as simple as can be: it joins, shows that it is alive, and reports."""

import base64
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from knfleet.api.certificate_requests import CSRS, SIGNER
from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    AVAILABLE,
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    GROUP_PREFIX,
    JOINED,
    LEASE_NAME,
    MANAGED_CLUSTERS,
    agent_user,
)
from knfleet.api.core import LEASES
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.hub.registration.drivers.csr import approve, concluded
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Conflict
from knfleet.runtime.leader.lease_rules import microtime
from testbed.waiting import until

USAGES = ["digital signature", "key encipherment", "client auth"]
DANGLING = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "name": "was-never-there",
    "uid": "00000000-0000-4000-8000-000000000000",
}
"""An owner that the garbage collector finds gone: it deletes what this owns."""
EXTENSION_NAMES = x509.SubjectAlternativeName([x509.DNSName("kubernetes.default.svc")])


def request_pem(
    key: ec.EllipticCurvePrivateKey,
    name: str,
    organisations: list[str],
    *,
    names: bool = False,
) -> bytes:
    """A PKCS #10 request."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organisations]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(EXTENSION_NAMES, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def csr(cluster: str, pem: bytes, **spec: Any) -> Object:
    """A CertificateSigningRequest of an agent."""
    return {
        "apiVersion": CSRS.api_version,
        "kind": CSRS.kind,
        "metadata": {
            "generateName": f"{cluster}-",
            "labels": {CLUSTER_NAME_LABEL: cluster},
        },
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": SIGNER,
            "usages": USAGES,
            **spec,
        },
    }


class Agent:
    """An agent of one cluster."""

    def __init__(self, bootstrap: Connection, cluster: str, name: str = "a1") -> None:
        self.bootstrap = bootstrap
        self.cluster = cluster
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.connection = bootstrap

    @property
    def pem(self) -> bytes:
        """The request for this agent's certificate."""
        groups = [f"{GROUP_PREFIX}{self.cluster}", MANAGED_CLUSTERS]
        return request_pem(self.key, agent_user(self.cluster, self.name), groups)

    async def introduce(self, **spec: Any) -> None:
        """Make the ManagedCluster."""
        async with Client(self.bootstrap) as client:
            await client.create(CLUSTERS, managed_cluster(self.cluster, **spec))

    async def ask(self, connection: Connection | None = None) -> str:
        """Ask for a certificate; the name of the request."""
        async with Client(connection or self.bootstrap) as client:
            made = await client.create(CSRS, csr(self.cluster, self.pem))
        return made["metadata"]["name"]

    async def fetch(self, request: str) -> Connection:
        """Wait for the certificate, and log in with it."""
        async with Client(self.bootstrap) as client:

            async def is_issued() -> bool:
                found = await client.get(CSRS, request)
                return bool(found.get("status", {}).get("certificate"))

            await until(is_issued, f"{request} is issued")
            found = await client.get(CSRS, request)
        self.connection = replace(
            self.bootstrap,
            credentials=StaticCredential(
                Credential(
                    client_certificate=base64.b64decode(found["status"]["certificate"]),
                    client_key=self.key.private_bytes(
                        serialization.Encoding.PEM,
                        serialization.PrivateFormat.PKCS8,
                        serialization.NoEncryption(),
                    ),
                )
            ),
        )
        return self.connection

    async def join(self, admin: Client, **spec: Any) -> Connection:
        """Go all the way, with an administrator who says yes."""
        await self.introduce(**spec)
        request = await self.ask()
        await accept(admin, self.cluster)
        # A hub that approves by itself may be quicker.
        with suppress(Conflict):
            manifest = await admin.get(CSRS, request)
            if not concluded(manifest):
                await approve(admin, manifest, reason="Test", message="accepted")
        await self.fetch(request)
        await until(lambda: is_said(admin, self.cluster, ACCEPTED, "True"), "accepted")
        return self.connection

    async def renew(self, client: Client, renewed: datetime | None = None) -> None:
        """Show that it is alive."""
        spec = {"renewTime": microtime(renewed or datetime.now(UTC))}
        await client.patch(LEASES, Key(self.cluster, LEASE_NAME), {"spec": spec})

    async def report(self, client: Client, status: str = "True", **more: Any) -> None:
        """Say that the cluster has joined, and whether it is available."""
        while True:
            found = await client.get(CLUSTERS, self.cluster)
            old: list[Object] = found.get("status", {}).get("conditions") or []
            said = [each for each in old if each["type"] not in (JOINED, AVAILABLE)]
            now = timestamp(datetime.now(UTC))
            for type_, value in ((JOINED, "True"), (AVAILABLE, status)):
                said.append(
                    {
                        "type": type_,
                        "status": value,
                        "reason": type_,
                        "message": "said by the agent",
                        "lastTransitionTime": now,
                    }
                )
            patch: Object = {
                "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                "status": {"conditions": said, **more},
            }
            try:
                await client.patch(CLUSTERS, Key("", self.cluster), patch, subresource="status")
            except Conflict:
                continue
            return


def managed_cluster(name: str, **spec: Any) -> Object:
    """A ManagedCluster as agents make it."""
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": CLUSTERS.kind,
        "metadata": {"name": name},
        "spec": {"hubAcceptsClient": False, **spec},
    }


async def accept(admin: Client, cluster: str, *, value: bool = True) -> None:
    """Accept or deny a cluster."""
    await admin.patch(CLUSTERS, Key("", cluster), {"spec": {"hubAcceptsClient": value}})


async def condition(admin: Client, cluster: str, type_: str) -> Object:
    """A condition of a cluster; empty when it has none of the type."""
    found = await admin.get(CLUSTERS, cluster)
    said: list[Object] = found.get("status", {}).get("conditions") or []
    return next((each for each in said if each["type"] == type_), Object())


async def is_said(admin: Client, cluster: str, type_: str, status: str) -> bool:
    """Whether a cluster has a condition with a status."""
    return (await condition(admin, cluster, type_)).get("status") == status
