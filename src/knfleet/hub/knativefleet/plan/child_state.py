"""What a child of a fleet says: which revision it has, and how far the operator is. Pure."""

from datetime import datetime

from msgspec import Struct

from knfleet.api.fleet.fleet_names import CONTENT_HASH, FLEET_LABEL, REVISION, STARTED, SUSPENDED
from knfleet.api.knative.conditions import (
    READY,
    TARGET_CLUSTER_RESOLVED,
    VERSION_MIGRATION_ELIGIBLE,
    Condition,
    find,
)
from knfleet.api.knative.resources import Component, KnativeStatus
from knfleet.api.meta import Key, Object
from knfleet.api.moments import as_moment
from knfleet.api.schema import DecodeError, decode
from knfleet.apply.manifest_fields import part
from knfleet.hub.knativefleet.template.fleet_template import KINDS, SpecValue

PASSING = "RemoteClusterStale"
"""The reason of a connection that is being made anew: not a cluster that is lost."""
BY_PROFILE, BY_ACCESS = "profile", "access"
"""Why a child is suspended: its profile says that the cluster is lost, or it cannot be reached."""


class Child(Struct, frozen=True, kw_only=True):
    """A KnativeServing or KnativeEventing of one cluster."""

    component: Component
    key: Key
    uid: str = ""
    profile: Key = Key("", "")
    fleet: str = ""
    """The fleet that it belongs to; empty when a user made it."""
    revision: str = ""
    hash: str = ""
    started: datetime | None = None
    """When its fleet last changed it."""
    suspended: str = ""
    value: SpecValue | None = None
    """Its spec; None when that is unreadable."""
    is_settled: bool = False
    """Whether the operator is done with this very spec, and all is ready."""
    ready_since: datetime | None = None
    message: str = ""
    """Why it is not ready."""
    installed: str = ""
    refused: str = ""
    """Why the version is not even tried, if that is so."""
    lost_since: datetime | None = None
    """Since when its cluster cannot be reached, if that is so."""
    lost: str = ""
    deleting: bool = False

    @property
    def version(self) -> str:
        """The version that its spec asks for."""
        return "" if self.value is None else self.value.version


def read_child(manifest: Object, component: Component) -> Child:
    """What is read of a custom resource."""
    meta, spec = manifest["metadata"], part(manifest, "spec")
    annotations = part(meta, "annotations")
    reference = part(spec, "clusterProfileRef")
    try:
        found = decode(manifest, KINDS[component])
        value, status = found.spec, found.status
    except DecodeError:
        value, status = None, readable_status(manifest)
    is_current = status.observed_generation >= meta.get("generation", 0)
    ready = find(status.conditions, READY) or Condition(type=READY, status="Unknown")
    resolved = find(status.conditions, TARGET_CLUSTER_RESOLVED)
    eligible = find(status.conditions, VERSION_MIGRATION_ELIGIBLE)
    is_lost = resolved is not None and resolved.status == "False" and resolved.reason != PASSING
    is_refused = is_current and eligible is not None and eligible.status == "False"
    return Child(
        component=component,
        key=Key.of(manifest),
        uid=meta.get("uid", ""),
        profile=Key(str(reference.get("namespace", "")), str(reference.get("name", ""))),
        fleet=part(meta, "labels").get(FLEET_LABEL, ""),
        revision=annotations.get(REVISION, ""),
        hash=annotations.get(CONTENT_HASH, ""),
        started=as_moment(annotations.get(STARTED, "")),
        suspended=annotations.get(SUSPENDED, ""),
        value=value,
        is_settled=is_current and ready.status == "True",
        ready_since=as_moment(ready.last_transition_time),
        message=ready.message or ready.reason,
        installed=status.version,
        refused=eligible.message if is_refused and eligible is not None else "",
        lost_since=as_moment(resolved.last_transition_time) if is_lost and resolved else None,
        lost=(resolved.message or resolved.reason) if is_lost and resolved else "",
        deleting=bool(meta.get("deletionTimestamp")),
    )


def readable_status(manifest: Object) -> KnativeStatus:
    """The status of an object whose spec is unreadable."""
    try:
        return decode({**manifest, "spec": {}}, KINDS["serving"]).status
    except DecodeError:
        return KnativeStatus()
