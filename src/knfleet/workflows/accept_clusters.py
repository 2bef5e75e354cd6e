"""A person accepts a cluster: its certificate request is approved, and the cluster is accepted."""

import base64
from collections.abc import Sequence

from cryptography import x509
from msgspec import Struct

from knfleet.api.aws_registration import MANAGED_ARN
from knfleet.api.certificate_requests import CSRS
from knfleet.api.cluster.managedcluster import (
    ALLOW_REREGISTRATION,
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    JOINED,
    ManagedCluster,
)
from knfleet.api.conditions import is_true
from knfleet.api.meta import Key, Object
from knfleet.api.operator import BOOTSTRAP_PREFIX, BOOTSTRAP_USERS
from knfleet.api.schema import decode
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.observe.collection import Collection, follow
from knfleet.hub.registration.drivers.csr import approve
from knfleet.hub.registration.drivers.csr_rules import AgentCertificateRequest, examine
from knfleet.kube.auth.x509 import fingerprint
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound

REASON = "AcceptedByAdministrator"
LISTED = 10
"""So many requests are named when a person must choose."""


class NotAcceptable(Exception):
    """The cluster cannot be accepted as it is; the message says what to do."""


class PendingCluster(Struct, frozen=True):
    """A request that waits for a person."""

    manifest: Object
    request: AgentCertificateRequest

    @property
    def name(self) -> str:
        return self.manifest["metadata"]["name"]

    @property
    def fingerprint(self) -> str:
        """The digest of the public key that it asks to certify."""
        pem = base64.b64decode(self.manifest["spec"]["request"])
        return fingerprint(x509.load_pem_x509_csr(pem).public_key())

    @property
    def line(self) -> str:
        """Who asks with which key, for people."""
        return f"CSR {self.name} of agent {self.request.agent}, key {self.fingerprint}"


class AcceptedCluster(Struct, frozen=True):
    """What accepting a cluster changed."""

    requests: tuple[PendingCluster, ...]
    """What was approved."""
    is_new: bool


class AcceptOptions(Struct, frozen=True):
    """How clusters are to be accepted."""

    requesters: tuple[str, ...] = ()
    """Users who may ask, beside those that every hub knows."""
    agent: str = ""
    """The agent to accept, when several ask."""
    key: str = ""
    """The fingerprint of the key to accept, when several ask."""
    again: bool = False
    """Whether a new agent may take the place of one that is alive."""
    patience: float = 5.0
    """Seconds to wait for a cluster that is about to ask."""
    dry_run: bool = False


def is_bootstrap(user: str, requesters: Sequence[str]) -> bool:
    """Whether a user is one of those who may ask for clusters to join."""
    known = user in BOOTSTRAP_USERS or user.startswith(BOOTSTRAP_PREFIX)
    return known or user in requesters


def choose(
    pending: Sequence[PendingCluster], cluster: str, wish: AcceptOptions
) -> list[PendingCluster]:
    """The requests to approve, all of one key; raises `NotAcceptable` when a person must choose."""
    known = [each for each in pending if is_bootstrap(each.request.user, wish.requesters)]
    fitting = [
        each
        for each in known
        if wish.agent in ("", each.request.agent) and wish.key in ("", each.fingerprint)
    ]
    if wish.key and not fitting:
        raise NotAcceptable(f"{cluster}: none of the requests is of key {wish.key}{listed(known)}")
    if len({each.fingerprint for each in fitting}) > 1:
        raise NotAcceptable(
            f"{cluster}: several keys ask for this name, and only one can be your cluster's; the"
            " log of the agent there tells its key: name that one with --key, and deny the others"
            f" by `kubectl certificate deny`{listed(fitting)}"
        )
    return fitting


def listed(pending: Sequence[PendingCluster]) -> str:
    """Requests as lines behind a message; not more than a few."""
    lines = [f"\n  {each.line}" for each in pending[:LISTED]]
    more = len(pending) - LISTED
    return "".join(lines) + (f"\n  and {more} more" if more > 0 else "")


async def pending_requests(hub: Client, cluster: str) -> list[PendingCluster]:
    """The well-formed requests of a cluster that are not answered."""
    found = await hub.list(CSRS, labels=f"{CLUSTER_NAME_LABEL}={cluster}")
    pending: list[PendingCluster] = []
    for each in found.items:
        request = examine(each)
        if is_open(each) and isinstance(request, AgentCertificateRequest):
            pending.append(PendingCluster(each, request))
    return [each for each in pending if each.request.cluster == cluster]


async def asked(hub: Client, cluster: str, *, seconds: float) -> None:
    """Wait a while for a request of a cluster that is not answered."""
    collection = Collection(CSRS, labels=f"{CLUSTER_NAME_LABEL}={cluster}")
    await follow(hub, collection, lambda found: any(map(is_open, found.values())), seconds=seconds)


def is_open(request: Object) -> bool:
    """Whether a request is not answered."""
    return not items(request, "status", "conditions")


async def accept(
    hub: Client,
    cluster: str,
    wish: AcceptOptions = AcceptOptions(),  # noqa: B008 - a frozen value
) -> AcceptedCluster:
    """Approve what a cluster asks for, and take it in; one that is about to ask is waited for.

    With a dry run only what would be done is returned.
    """
    try:
        before = await hub.get(CLUSTERS, cluster)
    except NotFound as error:
        raise NotAcceptable(
            f"{cluster}: there is no ManagedCluster of that name; run `knfleet join` on the"
            " cluster, or see `knfleet get clusters` for the names there are"
        ) from error
    if wish.again and not wish.dry_run:
        return await accept_again(hub, before, wish)
    return await accept_known(hub, before, wish)


async def accept_again(hub: Client, before: Object, wish: AcceptOptions) -> AcceptedCluster:
    """Accept a cluster whose place a new agent may take; if that fails, it may not any longer."""
    await permit_again(hub, before, "true")
    try:
        return await accept_known(hub, before, wish)
    except BaseException:
        was = part(before, "metadata", "annotations").get(ALLOW_REREGISTRATION)
        await permit_again(hub, before, was)
        raise


async def permit_again(hub: Client, cluster: Object, value: str | None) -> None:
    """Say on a cluster whether a new agent may take the place of one that is alive."""
    marked = {"metadata": {"annotations": {ALLOW_REREGISTRATION: value}}}
    await hub.patch(CLUSTERS, Key.of(cluster), marked)


async def accept_known(hub: Client, before: Object, wish: AcceptOptions) -> AcceptedCluster:
    """Approve what a cluster that is there asks for, and take it in."""
    key = Key.of(before)
    cluster = key.name
    by_role = MANAGED_ARN in part(before, "metadata", "annotations")
    if not by_role and not is_true(decode(before, ManagedCluster).status.conditions, JOINED):
        await asked(hub, cluster, seconds=wish.patience)
    pending = await pending_requests(hub, cluster)
    chosen = choose(pending, cluster, wish)
    accepted = AcceptedCluster(tuple(chosen), not part(before, "spec").get("hubAcceptsClient"))
    if wish.dry_run:
        return accepted
    for each in chosen:
        await approve(hub, each.manifest, reason=REASON, message="approved by `knfleet accept`")
    if accepted.is_new:
        await hub.patch(CLUSTERS, key, {"spec": {"hubAcceptsClient": True}})
    return accepted
