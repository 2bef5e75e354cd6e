"""Why a target cluster cannot be used: the reasons of the condition TargetClusterResolved."""

from knfleet.kube.errors import KubeError

MULTICLUSTER_DISABLED = "MulticlusterDisabled"
"""No provider file is configured."""
ACCESS_PROVIDER_NOT_CONFIGURED = "AccessProviderNotConfigured"
"""The provider file is missing, makes no sense, or lists no provider."""
CLUSTER_PROFILE_NOT_FOUND = "ClusterProfileNotFound"
"""There is no such profile, or its API is not installed."""
CLUSTER_PROFILE_NOT_READY = "ClusterProfileNotReady"
"""ControlPlaneHealthy is not True."""
CLUSTER_PROFILE_UNAVAILABLE = "ClusterProfileUnavailable"
"""The profile cannot be read now, has no access provider, or none that we know."""
ACCESS_PROVIDER_FAILED = "AccessProviderFailed"
"""The plugin is missing, failed, took too long, or printed something else."""
REMOTE_CLIENT_CREATION_FAILED = "RemoteClientCreationFailed"
"""Bad server, CA or TLS; no answer; not let in; or a cluster that must not be used."""
REMOTE_CLUSTER_STALE = "RemoteClusterStale"
"""Credentials or endpoint changed, and the new connection is not up yet."""
CLUSTER_PROVIDER_CLOSED = "ClusterProviderClosed"
"""This process is shutting down."""

REASONS = (
    MULTICLUSTER_DISABLED,
    ACCESS_PROVIDER_NOT_CONFIGURED,
    CLUSTER_PROFILE_NOT_FOUND,
    CLUSTER_PROFILE_NOT_READY,
    CLUSTER_PROFILE_UNAVAILABLE,
    ACCESS_PROVIDER_FAILED,
    REMOTE_CLIENT_CREATION_FAILED,
    REMOTE_CLUSTER_STALE,
    CLUSTER_PROVIDER_CLOSED,
)


class AccessError(KubeError):
    """A cluster cannot be used now.

    The message says what was tried, what came back, and what happens next; never a secret. It is a
    `KubeError`, because a client whose cluster is lost raises it in place of sending anything.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        """One of the reasons of this module."""


def provider_closed() -> AccessError:
    """This process ends."""
    text = "cluster provider closed during shutdown; the next process goes on"
    return AccessError(CLUSTER_PROVIDER_CLOSED, text)
