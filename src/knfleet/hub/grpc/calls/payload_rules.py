"""What of a published object is written to the hub, and only for its own cluster. Pure.

The server writes with rights of its own, so nothing in a payload is believed: each function makes a
new object of the fields that an agent may set, and refuses names of other clusters.
"""

from typing import Any

import msgspec
from msgspec import Struct

from knfleet.api.certificate_requests import CSR_USER, CSRS, GRPC_SIGNER, SIGNER
from knfleet.api.cluster.managedcluster import (
    AGENT_ANNOTATIONS,
    CLUSTER_NAME_LABEL,
    CLUSTERS,
    LEASE_NAME,
)
from knfleet.api.cluster.tunnel import TUNNEL_MODE, TUNNEL_SERVER
from knfleet.api.core import LEASES
from knfleet.api.meta import Object, Resource
from knfleet.cloudevents.cloud_event import EventError
from knfleet.cloudevents.event_types import EVENTS, TOKEN_REQUESTS
from knfleet.hub.registration.drivers.csr_rules import RequestProblem, examine

IDENTITY_LETTERS = 128
CSR_SPEC = ("request", "usages", "expirationSeconds")
ACCESS_KEYS = frozenset(
    {"token", "server", "ca.crt", "expiration", "proxy-url", "tls-server-name"}
    | {TUNNEL_MODE, TUNNEL_SERVER}
)


def metadata(manifest: Object) -> Object:
    """The metadata of an object, which `read_object` has checked."""
    return manifest["metadata"]


def named(manifest: Object, *, name: str = "", namespace: str = "") -> None:
    """Raise `EventError` unless an object has a name and a namespace."""
    meta = metadata(manifest)
    if name and meta.get("name") != name:
        raise EventError(f"the object is called {meta.get('name')!r}; expected {name!r}")
    if not meta.get("name") or meta.get("generateName"):
        raise EventError("the object has no name, or one that is to be generated")
    if meta.get("namespace", "") != namespace:
        found, wanted = meta.get("namespace", ""), namespace or "none"
        raise EventError(f"the object is in namespace {found!r}; expected {wanted!r}")


def new_cluster(manifest: Object, cluster: str) -> Object:
    """The ManagedCluster by which an agent asks to join."""
    named(manifest, name=cluster)
    meta = metadata(manifest)
    given: Object = meta.get("annotations") or {}
    annotations = {key: value for key, value in given.items() if key.startswith(AGENT_ANNOTATIONS)}
    made: Object = {"name": cluster, "annotations": annotations, "labels": meta.get("labels") or {}}
    spec: Object = {"hubAcceptsClient": False, **client_configs(manifest)}
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": CLUSTERS.kind,
        "metadata": {key: value for key, value in made.items() if value},
        "spec": spec,
    }


def client_configs(manifest: Object) -> Object:
    """The one field of a cluster's spec that its agent may set."""
    spec: Any = manifest.get("spec")
    configs: Any = spec.get("managedClusterClientConfigs") if isinstance(spec, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  any JSON
    return {"managedClusterClientConfigs": configs} if configs else {}


def cluster_patch(manifest: Object, cluster: str) -> Object:
    """The change of a cluster's spec that its agent asks for."""
    named(manifest, name=cluster)
    return {"spec": {"managedClusterClientConfigs": [], **client_configs(manifest)}}


def cluster_status(manifest: Object, cluster: str) -> Object:
    """The status of a cluster, in the version that the agent knows."""
    named(manifest, name=cluster)
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": CLUSTERS.kind,
        "metadata": versioned(manifest, {"name": cluster}),
        "spec": {"hubAcceptsClient": True},
        "status": part(manifest, "status"),
    }


def versioned(manifest: Object, meta: Object) -> Object:
    """Metadata with the version of an object, without which it would overwrite any."""
    version = metadata(manifest).get("resourceVersion")
    if not version:
        raise EventError("the object has no resourceVersion")
    return {**meta, "resourceVersion": version}


def part(manifest: Object, name: str) -> Object:
    """A part of an object; raises `EventError` unless it is an object itself."""
    try:
        return msgspec.convert(manifest.get(name) or {}, dict[str, Any])
    except msgspec.ValidationError as error:
        raise EventError(f"{name} of the object is not an object") from error


def certificate_request(manifest: Object, cluster: str, user: str) -> Object:
    """A request for a certificate of the cluster's agent, with the user who asks for it."""
    named(manifest)
    name = metadata(manifest)["name"]
    if not name.startswith(f"{cluster}-"):
        raise EventError(f"certificate requests of cluster {cluster} are called {cluster}-…")
    spec = part(manifest, "spec")
    signer = spec.get("signerName")
    if signer not in (GRPC_SIGNER, SIGNER):
        raise EventError(f"certificates are requested of {GRPC_SIGNER} or {SIGNER}")
    made: Object = {
        "apiVersion": CSRS.api_version,
        "kind": CSRS.kind,
        "metadata": {
            "name": name,
            "labels": {CLUSTER_NAME_LABEL: cluster},
            "annotations": {CSR_USER: user},
        },
        "spec": {
            "signerName": signer,
            **{key: spec[key] for key in CSR_SPEC if spec.get(key) is not None},
        },
    }
    try:
        found = examine(made)
    except TypeError as error:
        raise EventError("the certificate request has fields of another type") from error
    if isinstance(found, RequestProblem):
        raise EventError(f"the certificate request cannot be used: {found.reason}")
    return made


def lease_update(manifest: Object, cluster: str) -> Object:
    """The cluster's Lease with another time, in the version that the agent knows."""
    named(manifest, name=LEASE_NAME, namespace=cluster)
    meta = {
        "name": LEASE_NAME,
        "namespace": cluster,
        "labels": {CLUSTER_NAME_LABEL: cluster},
    }
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": versioned(manifest, meta),
        "spec": part(manifest, "spec"),
    }


def event_object(manifest: Object, cluster: str) -> Object:
    """An Event in the namespace of the cluster, without anything that refers to it."""
    named(manifest, namespace=cluster)
    meta = metadata(manifest)
    others = {key: value for key, value in manifest.items() if key not in ("metadata", "status")}
    return {
        **others,
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": meta["name"], "namespace": cluster},
    }


def addon_status(manifest: Object, cluster: str, resource: Resource) -> Object:
    """The status of an add-on of the cluster, in the version that the agent knows."""
    named(manifest, namespace=cluster)
    meta = {"name": metadata(manifest)["name"], "namespace": cluster}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": versioned(manifest, meta),
        "status": part(manifest, "status"),
    }


def access_data(manifest: Object, cluster: str) -> dict[str, str | None]:
    """The data of the Secret with the token for a cluster; None removes an entry."""
    named(manifest, namespace=cluster)
    try:
        data = msgspec.convert(part(manifest, "data"), dict[str, str | None])
    except msgspec.ValidationError as error:
        raise EventError("the token for a cluster is not a map of text") from error
    if not data.keys() <= ACCESS_KEYS:
        raise EventError("the token for a cluster has unknown entries")
    return data


class WantedToken(Struct, frozen=True):
    """A token that is asked for."""

    account: str
    identity: str
    """By which the caller knows the answer."""
    manifest: Object


def token_request(manifest: Object, cluster: str) -> WantedToken:
    """The request for a token of an account in the namespace of the cluster.

    It is one for the API server: of what may be asked for, only how long it lasts is the caller's.
    """
    named(manifest, namespace=cluster)
    meta = metadata(manifest)
    identity = str(meta.get("uid") or "")
    if not 0 < len(identity) <= IDENTITY_LETTERS:
        raise EventError("the token request has no uid by which its answer is known")
    seconds = part(manifest, "spec").get("expirationSeconds")
    if seconds is not None and (not isinstance(seconds, int) or isinstance(seconds, bool)):
        raise EventError("expirationSeconds of the token request is not a number")
    made: Object = {
        "apiVersion": TOKEN_REQUESTS.api_version,
        "kind": TOKEN_REQUESTS.kind,
        "spec": {} if seconds is None else {"expirationSeconds": seconds},
    }
    return WantedToken(meta["name"], identity, made)
