"""Whether a certificate request is what it says, and what the hub does about it. Pure.

`examine` looks at the request alone; `decide` at who asks, and at the cluster that is meant. What
does not pass stays pending, so that a person can look at it; only a name that is taken is denied.
"""

import base64
import re
import warnings
from typing import Any, Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID
from msgspec import Struct

from knfleet.api.certificate_requests import CSR_USER, GRPC_SIGNER, SIGNER
from knfleet.api.certificate_requests import USAGES as AGENT_USAGES
from knfleet.api.cluster.managedcluster import (
    AGENT_NAME,
    ALL_AGENTS,
    ALLOW_REREGISTRATION,
    AUTO_ACCEPTED,
    CLUSTER_NAME_LABEL,
    GROUP_PREFIX,
    MANAGED_CLUSTERS,
    ManagedCluster,
    cluster_groups,
    is_mapped,
)
from knfleet.api.meta import Object
from knfleet.api.operator import GRPC_SERVER_USER

BLOCK = re.compile(
    rb"\A\s*-----BEGIN CERTIFICATE REQUEST-----[^-]+-----END CERTIFICATE REQUEST-----\s*\Z"
)
SUBJECT = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
USAGES = frozenset(AGENT_USAGES)
SIGNERS = (SIGNER, GRPC_SIGNER)
UNREADABLE = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""How a subject or extensions fail that cannot be read."""

RENEWED = "AutoApprovedByHubCSRApprovingController"
NAME_TAKEN = "ClusterNameTaken"

Action = Literal["approve", "deny", "wait"]


class AgentCertificateRequest(Struct, frozen=True):
    """A request for the certificate of a cluster's agent, well-formed in every way."""

    cluster: str
    agent: str
    user: str
    """Who asks."""
    groups: tuple[str, ...] = ()

    @property
    def common_name(self) -> str:
        return f"{GROUP_PREFIX}{self.cluster}:{self.agent}"

    @property
    def renews(self) -> bool:
        """Whether the agent itself asks, by its certificate or by the role of its cluster."""
        return self.user == self.common_name or is_mapped(self.user, self.groups, self.cluster)

    @property
    def foreign(self) -> bool:
        """Whether another agent asks, of this cluster or of another."""
        return not self.renews and (
            self.user.startswith(GROUP_PREFIX) or MANAGED_CLUSTERS in self.groups
        )


class RequestProblem(Struct, frozen=True):
    """Why a request is not for us, or must not be approved."""

    reason: str


class ApprovalDecision(Struct, frozen=True):
    """What to do about a request."""

    action: Action
    reason: str = ""
    message: str = ""
    accepts: bool = False
    """Whether the cluster is accepted together with the request."""


def examine(manifest: Object) -> AgentCertificateRequest | RequestProblem:
    """What a CertificateSigningRequest asks for, or what is wrong with it."""
    spec: Object = manifest.get("spec") or {}
    labels: dict[str, str] = manifest["metadata"].get("labels") or {}
    cluster = labels.get(CLUSTER_NAME_LABEL, "")
    if cluster in ("", ALL_AGENTS):
        return RequestProblem(f"it has no label {CLUSTER_NAME_LABEL} with the name of a cluster")
    if spec.get("signerName") not in SIGNERS:
        return RequestProblem(f"its signer is neither {SIGNER} nor {GRPC_SIGNER}")
    usages: set[str] = set(spec.get("usages") or [])
    if "client auth" not in usages or not usages <= USAGES:
        return RequestProblem(f"its usages are not those of an agent: {', '.join(sorted(usages))}")
    request = parsed(spec.get("request", ""))
    if request is None:
        return RequestProblem(
            "it is not one PEM block of type CERTIFICATE REQUEST with a valid signature"
        )
    agent = agent_of(request, cluster)
    if isinstance(agent, RequestProblem):
        return agent
    user, groups = requester(manifest)
    return AgentCertificateRequest(cluster, agent, user, groups)


def requester(manifest: Object) -> tuple[str, tuple[str, ...]]:
    """Who asks for a certificate, and its groups.

    The gRPC server asks for others, whom it has authenticated; of anybody else the annotation is
    not believed. Groups do not follow from it: an agent is in those of its cluster.
    """
    spec: Object = manifest.get("spec") or {}
    meta: Object = manifest["metadata"]
    user: str = spec.get("username", "")
    if user != GRPC_SERVER_USER:
        return user, tuple(spec.get("groups") or ())
    annotations: dict[str, str] = meta.get("annotations") or {}
    labels: dict[str, str] = meta.get("labels") or {}
    asking = annotations.get(CSR_USER, "")
    groups = (cluster_groups(labels.get(CLUSTER_NAME_LABEL, ""))[0], MANAGED_CLUSTERS)
    return asking, groups if asking.startswith(GROUP_PREFIX) else ()


def parsed(text: str) -> x509.CertificateSigningRequest | None:
    """The PKCS #10 request in a manifest; None when it is none."""
    try:
        pem = base64.b64decode(text, validate=True)
        if not BLOCK.match(pem):
            return None
        with warnings.catch_warnings():
            # Common names of agents may be longer than X.509 wants them to be.
            warnings.simplefilter("ignore")
            request = x509.load_pem_x509_csr(pem)
            return request if request.is_signature_valid else None
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        return None


def agent_of(request: x509.CertificateSigningRequest, cluster: str) -> str | RequestProblem:
    """The agent that a request names, if it asks for what agents of the cluster get."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attributes = [(each.oid, each.value) for each in request.subject]
            extensions = [each.oid.dotted_string for each in request.extensions]
    except UNREADABLE as error:
        return RequestProblem(f"its subject or extensions cannot be read: {error}")
    if extensions:
        return RequestProblem("it requests extensions, such as other names; an agent has none")
    return agent_in(attributes, cluster)


def agent_in(
    attributes: list[tuple[x509.ObjectIdentifier, Any]], cluster: str
) -> str | RequestProblem:
    """The agent that a subject names, if organisations and common name are the cluster's."""
    names = [str(value) for oid, value in attributes if oid == NameOID.COMMON_NAME]
    organisations = {value for oid, value in attributes if oid == NameOID.ORGANIZATION_NAME}
    others = [oid for oid, _ in attributes if oid not in SUBJECT]
    wanted = {cluster_groups(cluster)[0], MANAGED_CLUSTERS}
    if others or len(names) != 1:
        return RequestProblem("its subject is not one common name and organisations")
    if missing := wanted - organisations:
        return RequestProblem(f"its organisations lack {' and '.join(sorted(missing))}")
    if organisations != wanted:
        return RequestProblem(f"it requests organisations beside {' and '.join(sorted(wanted))}")
    prefix, _, rest = names[0].partition(GROUP_PREFIX)
    parts = rest.split(":")
    if prefix or len(parts) != 2 or not all(parts):
        return RequestProblem(f"its common name is not {GROUP_PREFIX}<cluster>:<agent>")
    if parts[0] != cluster:
        return RequestProblem(
            f"its common name is that of cluster {parts[0]}, its label says {cluster}"
        )
    return parts[1]


def decide(
    request: AgentCertificateRequest,
    cluster: ManagedCluster | None,
    *,
    alive: bool,
    may_renew: bool,
    auto_approved: frozenset[str],
) -> ApprovalDecision:
    """What to do about a request.

    `alive` says whether an agent of the cluster renewed its Lease lately, `may_renew` whether RBAC
    lets the one who asks renew certificates.
    """
    if cluster is None or cluster.metadata.deleting:
        return ApprovalDecision(
            "wait", message=f"there is no cluster {request.cluster}, or it is leaving"
        )
    recorded = cluster.metadata.annotations.get(AGENT_NAME, "")
    if request.renews:
        return decide_renewal(request, cluster, recorded=recorded, may_renew=may_renew)
    if request.foreign:
        return ApprovalDecision(
            "wait", message=f"{request.user} requests another agent's certificate"
        )
    if alive and cluster.metadata.annotations.get(ALLOW_REREGISTRATION) != "true":
        return decide_taken(request, recorded)
    return decide_first(request, cluster, auto_approved)


def decide_renewal(
    request: AgentCertificateRequest, cluster: ManagedCluster, *, recorded: str, may_renew: bool
) -> ApprovalDecision:
    """What to do when an agent asks for its next certificate."""
    if not may_renew or not cluster.spec.hub_accepts_client:
        return ApprovalDecision("wait", message=f"{request.user} may not renew: it is not accepted")
    if recorded and recorded != request.agent:
        return ApprovalDecision("wait", message=f"agent {recorded} has replaced {request.agent}")
    return ApprovalDecision("approve", RENEWED, "the agent renews its own certificate")


def decide_taken(request: AgentCertificateRequest, recorded: str) -> ApprovalDecision:
    """What to do when the cluster has an agent that is alive."""
    if not recorded or recorded == request.agent:
        return ApprovalDecision(
            "wait", message="the cluster has an agent that is alive; a person decides"
        )
    return ApprovalDecision(
        "deny",
        NAME_TAKEN,
        f"cluster {request.cluster} is accepted and its agent {recorded} is alive; choose another"
        f" name, stop that agent, or annotate the ManagedCluster with {ALLOW_REREGISTRATION}=true",
    )


def decide_first(
    request: AgentCertificateRequest, cluster: ManagedCluster, auto_approved: frozenset[str]
) -> ApprovalDecision:
    """What to do when a cluster asks for the first time, or again after it was lost."""
    if request.user not in auto_approved:
        return ApprovalDecision("wait", message="a person decides")
    was_accepted = AUTO_ACCEPTED in cluster.metadata.annotations
    if was_accepted and not cluster.spec.hub_accepts_client:
        return ApprovalDecision("wait", message="the cluster was denied after it had been accepted")
    return ApprovalDecision(
        "approve",
        RENEWED,
        f"{request.user} is one of those whose requests need no person",
        accepts=not cluster.spec.hub_accepts_client,
    )
