"""What a cluster's profile says, and which access it offers. Pure."""

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from knfleet.api.cluster.managedcluster import (
    AVAILABLE,
    CLUSTER_NAME_LABEL,
    JOINED,
    SET_LABEL,
    ManagedCluster,
)
from knfleet.api.cluster.tunnel import REACHED_BY, TUNNEL_ROUND_TRIP, TUNNEL_SINCE
from knfleet.api.conditions import find
from knfleet.api.inventory import CONTROL_PLANE_HEALTHY, MANAGER_LABEL, PROFILES, ProfileStatus
from knfleet.api.inventory import JOINED as PROFILE_JOINED
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.api.moments import as_moment
from knfleet.kube.auth.x509 import authorities

MANAGER = "open-cluster-management"
"""The cluster manager that our profiles name: what their consumers know it by."""
PROVIDER = "secretreader"
"""The access provider that our profiles offer: that of the Knative Operator's guide."""
PROFILE_SET_LABEL = "multicluster.x-k8s.io/clusterset"
TOKEN_LABEL = "knfleet.dev/spoke-token"  # noqa: S105  a name
OWN_PROPERTIES = frozenset({REACHED_BY, TUNNEL_SINCE, TUNNEL_ROUND_TRIP})
"""Properties that the hub itself gives to profiles."""
EXEC_EXTENSION = "client.authentication.k8s.io/exec"


class ClusterAccess(Struct, frozen=True):
    """How a cluster's API server is reached, as reported by its agent."""

    server: str
    authorities: str = ""
    """PEM in base64; the system's own when empty."""
    proxy_url: str = ""
    tls_server_name: str = ""
    token: str = ""
    """In base64; empty when there is none, or none that is still valid."""
    expires: datetime | None = None

    def __repr__(self) -> str:
        return f"ClusterAccess({self.server!r})"


def access_of(
    cluster: ManagedCluster, secret: Object | None, now: datetime
) -> ClusterAccess | None:
    """How a cluster is reached: as its agent handed over, else as its spec says."""
    handed: dict[str, str] = (secret or {}).get("data") or {}
    server = decoded(handed.get("server", ""))
    token = handed.get("token", "")
    expires = as_moment(decoded(handed.get("expiration", "")))
    if server.startswith("https://") and token:
        if expires is not None and expires <= now:
            return None
        return ClusterAccess(
            server,
            checked(handed.get("ca.crt", "")),
            decoded(handed.get("proxy-url", "")),
            decoded(handed.get("tls-server-name", "")),
            token,
            expires,
        )
    known = cluster.spec.managed_cluster_client_configs
    return ClusterAccess(known[0].url, known[0].ca_bundle) if known else None


def decoded(text: str) -> str:
    """The text of a Secret's entry; empty when it is none."""
    try:
        return base64.b64decode(text, validate=True).decode().strip()
    except ValueError:
        return ""


def checked(text: str) -> str:
    """Authorities in base64, if they are certificates at all."""
    try:
        pem = authorities(base64.b64decode(text, validate=True))
    except ValueError:
        return ""
    return base64.b64encode(pem).decode()


def profile(namespace: str, cluster: ManagedCluster) -> Object:
    """A cluster's profile in a namespace, without its status."""
    labels = {MANAGER_LABEL: MANAGER, CLUSTER_NAME_LABEL: cluster.name}
    own_set = cluster.metadata.labels.get(SET_LABEL)
    if own_set:
        labels[PROFILE_SET_LABEL] = own_set
    return {
        "apiVersion": PROFILES.api_version,
        "kind": PROFILES.kind,
        "metadata": {"name": cluster.name, "namespace": namespace, "labels": labels},
        "spec": {"displayName": cluster.name, "clusterManager": {"name": MANAGER}},
    }


def is_ours(manifest: Object) -> bool:
    """Whether a profile is one that we publish."""
    labels: dict[str, str] = manifest["metadata"].get("labels") or {}
    return (
        labels.get(MANAGER_LABEL) == MANAGER
        and labels.get(CLUSTER_NAME_LABEL) == manifest["metadata"]["name"]
    )


def status(
    place: Key,
    cluster: ManagedCluster,
    *,
    access: ClusterAccess | None,
    observed: ProfileStatus,
    now: datetime,
    reach: Mapping[str, str] | None = None,
) -> Object:
    """What the profile at a place says about a cluster; times of what did not change stay."""
    # Claims come from the agent: it must not say for the hub how the cluster is reached.
    claimed = {
        each.name: each.value
        for each in cluster.status.cluster_claims
        if each.name not in OWN_PROPERTIES
    }
    seen = {
        (each.name, each.value): each.last_observed_time
        for each in observed.properties
        if each.last_observed_time
    }
    written: Object = {
        "conditions": [
            condition(cluster, AVAILABLE, CONTROL_PLANE_HEALTHY),
            condition(cluster, JOINED, PROFILE_JOINED),
        ],
        "properties": [
            {
                "name": name,
                "value": value,
                "lastObservedTime": seen.get((name, value)) or timestamp(now),
            }
            for name, value in {**claimed, **(reach or {})}.items()
        ],
        "accessProviders": [] if access is None else [provider(place, access)],
    }
    if cluster.status.version.kubernetes:
        written["version"] = {"kubernetes": cluster.status.version.kubernetes}
    return written


def condition(cluster: ManagedCluster, source: str, type_: str) -> Object:
    """A condition of a cluster as its profile says it; consumers need it from the beginning."""
    condition = find(cluster.status.conditions, source)
    if condition is None:
        return {
            "type": type_,
            "status": "Unknown",
            "reason": "NotReported",
            "message": "The cluster's agent has not reported yet.",
            "lastTransitionTime": cluster.metadata.creation_timestamp,
        }
    return {
        "type": type_,
        "status": condition.status,
        "reason": condition.reason or source,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
    }


def provider(place: Key, access: ClusterAccess) -> Object:
    """The access provider of a cluster.

    The namespace is for our own plugin; the reference one looks only where it runs itself.
    """
    config = {"clusterName": place.name, "namespace": place.namespace}
    reached: Object = {
        "server": access.server,
        "certificate-authority-data": access.authorities,
        "proxy-url": access.proxy_url,
        "tls-server-name": access.tls_server_name,
        "extensions": [{"name": EXEC_EXTENSION, "extension": config}],
    }
    return {"name": PROVIDER, "cluster": {name: part for name, part in reached.items() if part}}


def token_copy(owner: Object, access: ClusterAccess) -> Object:
    """The Secret with a cluster's token beside its profile, where `secretreader` looks for it."""
    meta = owner["metadata"]
    data = {"token": access.token}
    if access.expires is not None:
        data["expiration"] = base64.b64encode(timestamp(access.expires).encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {TOKEN_LABEL: "true", CLUSTER_NAME_LABEL: meta["name"]},
            "ownerReferences": [
                {
                    "apiVersion": PROFILES.api_version,
                    "kind": PROFILES.kind,
                    "name": meta["name"],
                    "uid": meta["uid"],
                }
            ],
        },
        "data": data,
    }


def digest(manifest: Object) -> str:
    """Tells contents of an object apart, without keeping them."""
    return hashlib.sha256(repr(sorted(manifest.items())).encode()).hexdigest()
