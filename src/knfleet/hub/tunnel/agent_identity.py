"""Which cluster's agent is at the other end of a connection, and whether it may be. Pure.

The name of the cluster is taken from the certificate that the TLS handshake verified, never from
anything that the agent says.
"""

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import Struct

from knfleet.api.cluster.managedcluster import ALL_AGENTS, GROUP_PREFIX, ManagedCluster


class AgentIdentity(Struct, frozen=True):
    """Who a certificate is for."""

    cluster: str
    agent: str
    expires: datetime


class IdentityError(Exception):
    """A certificate is not that of a cluster's agent; the message says why."""


def agent_identity(certificate: Mapping[str, Any]) -> AgentIdentity:
    """The agent that a verified certificate, as `ssl` describes it, is for."""
    subject = subject_of(certificate)
    names = subject.get("commonName", [])
    if len(names) != 1 or not names[0].startswith(GROUP_PREFIX):
        raise IdentityError("the certificate is not that of a cluster's agent")
    cluster, _, agent = names[0].removeprefix(GROUP_PREFIX).partition(":")
    if not cluster or not agent or cluster == ALL_AGENTS:
        raise IdentityError("the certificate names no cluster and agent")
    if f"{GROUP_PREFIX}{cluster}" not in subject.get("organizationName", []):
        raise IdentityError(f"the certificate is not in the group of cluster {cluster}")
    ends = ssl.cert_time_to_seconds(certificate["notAfter"])
    return AgentIdentity(cluster, agent, datetime.fromtimestamp(ends, UTC))


def subject_of(certificate: Mapping[str, Any]) -> dict[str, list[str]]:
    """The attributes of a certificate's subject."""
    found: dict[str, list[str]] = {}
    parts = cast("tuple[tuple[tuple[str, str], ...], ...]", certificate.get("subject", ()))
    for part in parts:
        for name, value in part:
            found.setdefault(name, []).append(value)
    return found


def denial(identity: AgentIdentity, cluster: ManagedCluster | None, now: datetime) -> str:
    """Why an agent may not be connected; empty when it may."""
    name = identity.cluster
    if cluster is None:
        return f"ManagedCluster {name} does not exist"
    if cluster.metadata.deleting:
        return f"ManagedCluster {name} is being deleted"
    if not cluster.spec.hub_accepts_client:
        return f"ManagedCluster {name} is not accepted"
    if identity.expires <= now:
        return f"the certificate of {name} expired {identity.expires:%Y-%m-%d %H:%M:%S UTC}"
    return ""


def is_issued_by(certificate: bytes, authorities: bytes) -> bool:
    """Whether one of some CAs, as PEM, signed a certificate, as DER."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        leaf = x509.load_der_x509_certificate(certificate)
        known = x509.load_pem_x509_certificates(authorities)
    except (ValueError, x509.InvalidVersion):
        return False
    for each in known:
        try:
            leaf.verify_directly_issued_by(each)
        except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
            continue
        return True
    return False
