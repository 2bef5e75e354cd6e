"""The Lease in a cluster's namespace that says which replica of the hub has its tunnel. Pure."""

from datetime import datetime

from msgspec import Struct

from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL
from knfleet.api.cluster.tunnel import ROUND_TRIP, TUNNEL_LEASE
from knfleet.api.meta import Object
from knfleet.api.moments import as_moment
from knfleet.apply.manifest_fields import part
from knfleet.runtime.leader.lease_rules import microtime


class TunnelHolder(Struct, frozen=True):
    """Who has the tunnel of a cluster."""

    address: str
    """Where that replica's front is, as host:port."""
    since: datetime
    round_trip_milliseconds: int | None = None


def holder(lease: Object | None) -> TunnelHolder | None:
    """Who has a tunnel, as its Lease says; None when nobody has."""
    spec = part(lease or {}, "spec")
    since = as_moment(str(spec.get("acquireTime") or ""))
    address = str(spec.get("holderIdentity") or "")
    if not address or since is None:
        return None
    text = str(part(lease or {}, "metadata", "annotations").get(ROUND_TRIP) or "")
    return TunnelHolder(address, since, int(text) if text.isdecimal() else None)


def holder_lease(cluster: str, held: TunnelHolder) -> Object:
    """The Lease of a tunnel that is open."""
    meta: Object = {
        "name": TUNNEL_LEASE,
        "namespace": cluster,
        "labels": {CLUSTER_NAME_LABEL: cluster},
    }
    if held.round_trip_milliseconds is not None:
        meta["annotations"] = {ROUND_TRIP: str(held.round_trip_milliseconds)}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": meta,
        "spec": {"holderIdentity": held.address, "acquireTime": microtime(held.since)},
    }
