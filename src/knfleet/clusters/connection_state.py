"""How a spoke stands, as values: what status, metrics and messages are made of."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from knfleet.api.meta import ClusterName, Key
from knfleet.clusters.access_errors import (
    ACCESS_PROVIDER_FAILED,
    REMOTE_CLIENT_CREATION_FAILED,
    REMOTE_CLUSTER_STALE,
    AccessError,
)
from knfleet.clusters.access_resolver import ResolvedAccess
from knfleet.kube.errors import (
    ConfigError,
    CredentialError,
    Forbidden,
    KubeError,
    ResponseTooLarge,
    TlsFailed,
    Unauthorized,
)

RETRY = "the next try is within 10 s"
RETRY_EXCESS = "nothing is read from it before the next try, within 5 min"
RETRY_PLUGIN = "it is run again within 15 s, or when the program changes"


class Phase(StrEnum):
    """How far a spoke is from being used."""

    CONNECTING = "connecting"
    """The first answer is still to come."""
    UP = "up"
    """It answers, and it is the cluster that it was."""
    LOST = "lost"
    """It does not answer, or not any more."""
    REFUSED = "refused"
    """It, its plugin or its profile says no."""
    CLOSED = "closed"


class PhaseReason(Struct, frozen=True):
    """A phase, and why."""

    phase: Phase
    reason: str = ""
    message: str = ""


class ClusterState(Struct, frozen=True, kw_only=True):
    """How a spoke stands at one moment."""

    profile: Key
    phase: Phase
    reason: str = ""
    """One of `access.reasons`; empty while it is up, or connecting for the first time."""
    message: str = ""
    since: datetime
    """From when on phase and reason have been these."""
    last_contact: datetime | None = None
    server: str = ""
    provider: str = ""
    version: str = ""
    uid: str = ""
    """Of its kube-system; empty when it is not known."""
    failures: int = 0
    """How many tries failed since the last good one."""
    plugin_seconds: float = 0.0
    """How long the plugin ran, all runs together."""
    plugin_runs: int = 0


def cluster_name(profile: Key) -> ClusterName:
    return ClusterName(str(profile))


def failure(error: KubeError, profile: Key, access: ResolvedAccess) -> PhaseReason:
    """What a failed try to reach a spoke means."""
    server = access.endpoint.server
    creating = f"ClusterProfile {profile}: failed to create remote kube client"
    phase, reason = Phase.REFUSED, REMOTE_CLIENT_CREATION_FAILED
    match error:
        case AccessError():
            reason, text = error.reason, str(error)
        case CredentialError():
            building = f"failed to build config from ClusterProfile {profile}"
            reason = ACCESS_PROVIDER_FAILED
            text = f"{building}: getting credentials: {error}; {RETRY_PLUGIN}"
        case Unauthorized() | Forbidden():
            what = f"{server} does not accept the credentials of access provider {access.provider}"
            text = f"{creating}: {what}: {error}; the plugin is run again within 15 s"
        case TlsFailed():
            hint = "compare the profile's certificate-authority-data with the server's certificate"
            text = f"{creating}: {error}; {hint}; {RETRY}"
        case ResponseTooLarge():
            text = f"{creating}: {server} sends more than a cluster may: {error}; {RETRY_EXCESS}"
        case ConfigError():
            text = f"{creating}: {error}; goes on when the profile changes"
        case _:
            phase = Phase.LOST
            text = f"{creating}: {server} does not answer: {error}; {RETRY}"
    return PhaseReason(phase, reason, text)


def stale(profile: Key, server: str) -> PhaseReason:
    """A connection is replaced by one that did not answer yet."""
    text = (
        f"cluster connection is stale: {profile}: the access to it changed; connecting to {server}"
    )
    return PhaseReason(Phase.CONNECTING, REMOTE_CLUSTER_STALE, text)


def replaced(profile: Key, before: str, now: str) -> AccessError:
    """The endpoint leads to another cluster than before."""
    return AccessError(
        REMOTE_CLUSTER_STALE,
        f"cluster connection is stale: {profile}: its endpoint leads to another cluster now"
        f" (uid of kube-system was {before or 'unknown'}, is {now or 'unknown'}); nothing is"
        " written there for what was installed on the old one",
    )
