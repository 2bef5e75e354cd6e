"""What a caller must be allowed on the hub's API server for each call. Pure."""

from msgspec import Struct

from knfleet.api.core import SECRETS
from knfleet.api.meta import Object, Resource
from knfleet.cloudevents.cloud_event import EventError
from knfleet.cloudevents.event_types import (
    ACCESS_TOKENS,
    CREATE,
    RESOURCES,
    RESYNC,
    STATUS,
    TOKEN_REQUESTS,
    UPDATE,
    DataType,
    EventType,
)
from knfleet.hub.grpc.calls.caller import Caller
from knfleet.hub.registration.rbac import ACCESS_SECRET

REVIEWS = Resource(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
VERBS = {CREATE: "create", UPDATE: "update", RESYNC: "list"}


class Access(Struct, frozen=True):
    """A verb on objects of one kind."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str = ""
    subresource: str = ""

    def review(self, caller: Caller) -> Object:
        """The SubjectAccessReview for a caller."""
        attributes = {
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "spec": {
                "user": caller.user,
                "groups": list(caller.groups),
                "uid": caller.uid,
                "resourceAttributes": {key: value for key, value in attributes.items() if value},
            },
        }

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {what} {self.name}".rstrip() + where


def subscription_access(wanted: DataType, cluster: str) -> tuple[Access, ...]:
    """What a caller needs to follow the objects of a cluster."""
    return tuple(access(wanted, verb, cluster) for verb in ("list", "watch"))


def publication_access(kind: EventType, cluster: str, name: str) -> Access:
    """What a caller needs to publish an event; raises `EventError` for other actions."""
    verb = VERBS.get(kind.action)
    if verb is None:
        raise EventError(f"action {kind.action!r} is not supported")
    part = "status" if kind.part == STATUS else ""
    return access(kind.data_type, verb, cluster, name, part)


def access(wanted: DataType, verb: str, cluster: str, name: str = "", part: str = "") -> Access:
    """A verb on the objects of a cluster that a data type stands for."""
    resource = RESOURCES[wanted]
    if resource == ACCESS_TOKENS:
        return Access("patch", SECRETS.group, SECRETS.plural, cluster, ACCESS_SECRET)
    if resource == TOKEN_REQUESTS:
        verb = "create" if verb == "create" else "subscribe"
        return Access(verb, "", "serviceaccounts", cluster, name, "token")
    namespace = cluster if resource.namespaced else ""
    if resource.plural == "managedclusters":
        name = cluster
    elif verb in ("list", "create"):
        name = ""
    return Access(verb, resource.group, resource.plural, namespace, name, part)
