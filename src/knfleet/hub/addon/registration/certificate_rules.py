"""Whether a certificate request of an add-on's agent is approved. Pure.

Names are compared as a whole: an agent of cluster `c1` never gets an identity of `c10`, and one
add-on never that of another. What is registered follows from the template: the status of an add-on
is written by the agent that asks.
"""

import warnings
from collections.abc import Sequence
from typing import Literal

from cryptography import x509
from cryptography.x509.oid import NameOID
from msgspec import Struct

from knfleet.api.addon.managedclusteraddon import ManagedClusterAddOn, RegistrationConfig
from knfleet.api.addon.names import ADDON_LABEL, KUBE_CLIENT_SIGNER, addon_groups, addon_user
from knfleet.api.cluster.managedcluster import (
    CLUSTER_NAME_LABEL,
    GROUP_PREFIX,
    MANAGED_CLUSTERS,
    ManagedCluster,
    cluster_groups,
    is_mapped,
)
from knfleet.api.meta import Key, Object
from knfleet.hub.addon.registration.agent_rights import AUTHENTICATED
from knfleet.hub.registration.drivers.csr_rules import UNREADABLE, RequestProblem, parsed
from knfleet.hub.registration.drivers.csr_rules import requester as requester_of

APPROVED = "AutoApprovedByHubCSRApprovingController"
USAGES = {"digital signature", "key encipherment", "client auth"}


class AddOnRequest(Struct, frozen=True):
    """A certificate request that names a cluster and an add-on, and is well-formed."""

    cluster: str
    addon: str
    signer: str
    requester: str
    requester_groups: frozenset[str]
    common_name: str
    organizations: frozenset[str]
    units: frozenset[str]
    dns_names: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """The ManagedClusterAddOn that it is for."""
        return Key(self.cluster, self.addon)


class CertificateVerdict(Struct, frozen=True):
    """What to do about a request, and why."""

    action: Literal["approve", "wait"]
    message: str


def is_addon_request(manifest: Object) -> bool:
    """Whether a request is for an add-on, and not for a cluster's agent."""
    labels: dict[str, str] = manifest["metadata"].get("labels") or {}
    return bool(labels.get(ADDON_LABEL)) and bool(labels.get(CLUSTER_NAME_LABEL))


def examine(manifest: Object) -> AddOnRequest | RequestProblem:
    """What a request asks for, or what is wrong with it."""
    spec: Object = manifest.get("spec") or {}
    labels: dict[str, str] = manifest["metadata"].get("labels") or {}
    usages: set[str] = set(spec.get("usages") or [])
    if "client auth" not in usages or not usages <= USAGES:
        return RequestProblem(f"its usages are not those of an agent: {', '.join(sorted(usages))}")
    request = parsed(spec.get("request", ""))
    if request is None:
        return RequestProblem(
            "it is not one PEM block of type CERTIFICATE REQUEST with a valid signature"
        )
    names = alternative_names(request)
    if isinstance(names, RequestProblem):
        return names
    with warnings.catch_warnings():
        # Common names of agents may be longer than X.509 wants them to be.
        warnings.simplefilter("ignore")
        try:
            attributes = [(each.oid, str(each.value)) for each in request.subject]
        except UNREADABLE as error:
            return RequestProblem(f"its subject cannot be read: {error}")
    user, groups = requester_of(manifest)
    common_names = [value for oid, value in attributes if oid == NameOID.COMMON_NAME]
    known = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME)
    if len(common_names) != 1 or any(oid not in known for oid, _ in attributes):
        return RequestProblem("its subject is not one common name, organisations and units")
    return AddOnRequest(
        cluster=labels.get(CLUSTER_NAME_LABEL, ""),
        addon=labels.get(ADDON_LABEL, ""),
        signer=spec.get("signerName", ""),
        requester=user,
        requester_groups=frozenset(groups),
        common_name=common_names[0],
        organizations=frozenset(
            value for oid, value in attributes if oid == NameOID.ORGANIZATION_NAME
        ),
        units=frozenset(
            value for oid, value in attributes if oid == NameOID.ORGANIZATIONAL_UNIT_NAME
        ),
        dns_names=names,
    )


def alternative_names(
    request: x509.CertificateSigningRequest,
) -> tuple[str, ...] | RequestProblem:
    """The DNS names that a request asks for; nothing else is an agent's."""
    try:
        extensions = list(request.extensions)
    except UNREADABLE as error:
        return RequestProblem(f"its extensions cannot be read: {error}")
    found: list[str] = []
    for each in extensions:
        if not isinstance(each.value, x509.SubjectAlternativeName):
            return RequestProblem(f"it asks for extension {each.oid.dotted_string}")
        for name in each.value:
            if not isinstance(name, x509.DNSName):
                return RequestProblem("it asks for alternative names that are no DNS names")
            found.append(name.value)
    return tuple(found)


def dns_name(addon: str) -> str:
    """The DNS name of an add-on's agents."""
    return f"{addon}.addon.open-cluster-management.io"


def decide(
    request: AddOnRequest,
    cluster: ManagedCluster | None,
    addon: ManagedClusterAddOn | None,
    registered: Sequence[RegistrationConfig],
) -> CertificateVerdict:
    """What to do about a request; what is not approved is left to others.

    `registered` is what the template gives the agents of the add-on.
    """
    problem = problem_of(request, cluster, addon) or subject_problem(request, registered)
    if problem:
        return CertificateVerdict("wait", problem)
    return CertificateVerdict(
        "approve", f"agent of add-on {request.addon} on cluster {request.cluster}"
    )


def problem_of(
    request: AddOnRequest, cluster: ManagedCluster | None, addon: ManagedClusterAddOn | None
) -> str:
    """Why a request is not approved; empty when nothing is wrong."""
    if cluster is None or cluster.metadata.deleting or not cluster.spec.hub_accepts_client:
        return f"cluster {request.cluster} does not exist, is not accepted, or is being removed"
    if addon is None or addon.metadata.deleting:
        return f"add-on {request.addon} is not installed on cluster {request.cluster}"
    if not is_agent(request, request.cluster):
        return f"{request.requester} is not an agent of cluster {request.cluster}"
    if any(name != dns_name(request.addon) for name in request.dns_names):
        return f"it asks for the names {', '.join(sorted(request.dns_names))}"
    return ""


def subject_problem(request: AddOnRequest, registered: Sequence[RegistrationConfig]) -> str:
    """What is wrong with the identity that a request asks for."""
    found = [each for each in registered if each.signer_name == request.signer]
    if not found:
        return f"add-on {request.addon} has no registration with signer {request.signer}"
    if request.signer == KUBE_CLIENT_SIGNER:
        return kube_client_problem(request, found[0])
    return custom_problem(request, found[0])


def is_agent(request: AddOnRequest, cluster: str) -> bool:
    """Whether an agent of the cluster asks: by its user name and by its group."""
    if is_mapped(request.requester, request.requester_groups, cluster):
        return True
    prefix, _, rest = request.requester.partition(f"{GROUP_PREFIX}{cluster}:")
    is_user = not prefix and bool(rest) and ":" not in rest
    return is_user and {cluster_groups(cluster)[0], MANAGED_CLUSTERS} <= request.requester_groups


def kube_client_problem(request: AddOnRequest, registration: RegistrationConfig) -> str:
    """What is wrong with a request for access to the hub's API server."""
    prefix = addon_user(request.cluster, request.addon, "")
    agent = request.common_name.removeprefix(prefix)
    is_own = request.common_name.startswith(prefix) and agent and ":" not in agent
    wanted_user = registration.subject.user
    if not is_own or (wanted_user and wanted_user != request.common_name):
        wanted = wanted_user or f"{prefix}<agent>"
        return f"its common name is {request.common_name}, not {wanted}"
    groups = set(addon_groups(request.cluster, request.addon))
    if set(request.organizations) - {AUTHENTICATED} != groups:
        return f"its organisations are not {' and '.join(sorted(groups))}"
    return "it has organizational units" if request.units else ""


def custom_problem(request: AddOnRequest, registration: RegistrationConfig) -> str:
    """What is wrong with a request to a custom signer: it must ask for the registered subject."""
    subject = registration.subject
    prefix = addon_user(request.cluster, request.addon, "")
    is_own = request.common_name.startswith(prefix) and not subject.user
    if request.common_name != subject.user and not is_own:
        return f"its common name is {request.common_name}, not {subject.user or prefix + '<agent>'}"
    if request.organizations != frozenset(subject.groups):
        return f"its organisations are not {', '.join(subject.groups) or 'empty'}"
    if request.units != frozenset(subject.organization_units):
        return "its organizational units are not those of the registration"
    return ""
