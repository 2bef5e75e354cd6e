"""Who calls the gRPC server, and for which cluster it may speak. Pure."""

import ssl

from msgspec import Struct

from knfleet.api.cluster.managedcluster import GROUP_PREFIX, MANAGED_CLUSTERS, cluster_groups
from knfleet.api.meta import Object

AUTHENTICATED = "system:authenticated"


class Caller(Struct, frozen=True):
    """A user as the hub's API server knows it."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    @property
    def cluster(self) -> str:
        """The cluster whose agent this is; empty when it is no agent."""
        prefix, _, rest = self.user.partition(GROUP_PREFIX)
        cluster, _, agent = rest.partition(":")
        return cluster if not prefix and agent and ":" not in agent else ""

    @property
    def is_agent(self) -> bool:
        """Whether name or groups are those of an agent."""
        return self.user.startswith(GROUP_PREFIX) or MANAGED_CLUSTERS in self.groups

    def problem(self, cluster: str) -> str:
        """Why the caller may not speak for a cluster, whatever RBAC lets it; empty when it may."""
        if not self.is_agent:
            return ""
        if self.cluster != cluster or cluster_groups(cluster)[0] not in self.groups:
            return f"{self.user} is not an agent of cluster {cluster}"
        return ""


Subject = tuple[tuple[tuple[str, str], ...], ...]


class PeerCertificate(Struct, frozen=True, rename="camel"):
    """What is read of a verified client certificate, as `SSLSocket.getpeercert` returns it."""

    subject: Subject = ()
    not_after: str = ""


def certified(found: PeerCertificate) -> Caller | None:
    """The user that a client certificate names."""
    subject = [pair for rdn in found.subject for pair in rdn]
    names = [value for kind, value in subject if kind == "commonName"]
    if len(names) != 1:
        return None
    groups = [value for kind, value in subject if kind == "organizationName"]
    return Caller(names[0], (*groups, AUTHENTICATED))


def certificate_end(found: PeerCertificate) -> float | None:
    """When a client certificate ends, in seconds since the epoch; None when there is none."""
    return float(ssl.cert_time_to_seconds(found.not_after)) if found.not_after else None


def reviewed(review: Object) -> Caller | None:
    """The user that a TokenReview names; None when the token is not accepted."""
    status: Object = review.get("status") or {}
    if not status.get("authenticated"):
        return None
    user: Object = status.get("user") or {}
    return Caller(user.get("username", ""), tuple(user.get("groups") or ()), user.get("uid", ""))
