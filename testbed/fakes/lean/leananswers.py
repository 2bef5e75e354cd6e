"""What lean spokes answer: pure functions of a spoke and a request, and the bytes of HTTP."""

import msgspec
from msgspec import Struct

from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import part
from testbed.fakes.lean.leanspoke import Event, LeanSpoke, Refused, Selected, text_of

encode = msgspec.json.Encoder().encode
decode = msgspec.json.decode

APPLY = "application/apply-patch+yaml"
REVIEWS = {
    "selfsubjectrulesreviews": {
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    },
    "selfsubjectaccessreviews": {"allowed": True},
}
REASONS = {200: "OK", 201: "Created", 401: "Unauthorized", 404: "Not Found", 409: "Conflict"}
VERBS = ["create", "delete", "get", "list", "patch", "watch"]
WRITES = {"POST": "create", "DELETE": "delete", "PATCH": "patch"}


class Asked(Struct, frozen=True):
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def only_metadata(self) -> bool:
        """Whether the rest of objects is not wanted."""
        return "as=PartialObjectMetadata" in self.headers.get("accept", "")

    @property
    def verb(self) -> str:
        """What is asked for, in the words of clients."""
        if self.method == "GET":
            return "watch" if self.query.get("watch") == "true" else "get"
        is_apply = self.headers.get("content-type") == APPLY
        return "apply" if is_apply else WRITES.get(self.method, self.method)

    @property
    def manager(self) -> str:
        """Who writes."""
        return self.query.get("fieldManager", "unknown")


def about_the_server(spoke: LeanSpoke, path: str) -> bytes | None:
    """What a server tells about itself."""
    if path == "/version":
        return b'{"gitVersion":"v1.35.0-lean"}'
    if path in ("/api", "/apis"):
        return encode({"kind": "APIGroupDiscoveryList", "items": groups(spoke, path == "/api")})
    parts = path.strip("/").split("/")
    place = ["", *parts[1:]] if parts[0] == "api" else parts[1:]
    if len(place) != 2:
        return None
    resources = [
        {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced, "verbs": VERBS}
        for each in spoke.resources.values()
        if [each.group, each.version] == place
    ]
    if not resources:
        raise Refused(404, "NotFound")
    return encode({"kind": "APIResourceList", "resources": resources})


def groups(spoke: LeanSpoke, core: bool) -> list[Object]:
    """Groups as aggregated discovery shows them."""
    found: dict[tuple[str, str], list[Object]] = {}
    for each in spoke.resources.values():
        if core == (not each.group):
            entry: Object = {
                "resource": each.plural,
                "responseKind": {"kind": each.kind},
                "scope": "Namespaced" if each.namespaced else "Cluster",
                "verbs": VERBS,
            }
            found.setdefault((each.group, each.version), []).append(entry)
    return [
        {"metadata": {"name": group}, "versions": [{"version": version, "resources": entries}]}
        for (group, version), entries in found.items()
    ]


def place_of(spoke: LeanSpoke, path: str) -> tuple[Resource, Key]:
    """The kind and the object that a path means; a collection has no name."""
    parts = path.strip("/").split("/")
    core = parts[0] == "api"
    group, version, rest = ("", parts[1], parts[2:]) if core else (parts[1], parts[2], parts[3:])
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural = rest[0] if rest else ""
    if plural in REVIEWS:
        return Resource(group, version, "Review", plural, namespaced=False), Key("", "")
    resource = spoke.resources.get((group, version, plural))
    if resource is None:
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    return resource, Key(namespace, rest[1] if len(rest) > 1 else "")


def selected(resource: Resource, namespace: str, query: dict[str, str]) -> Selected:
    """Which objects a query asks for."""
    terms = [term.partition("=") for term in query.get("labelSelector", "").split(",") if term]
    fields = dict(term.split("=") for term in query.get("fieldSelector", "").split(",") if term)
    labels = tuple((name, value) for name, _, value in terms)
    return Selected(resource, namespace, labels, fields.get("metadata.name", ""))


def listing(spoke: LeanSpoke, wanted: Selected, *, only_metadata: bool) -> bytes:
    """A list of all objects that are asked for."""
    texts = [
        text_of(wanted.resource, each, only_metadata=only_metadata) for each in spoke.select(wanted)
    ]
    head = f'{{"kind":"List","metadata":{{"resourceVersion":"{spoke.version}"}},"items":['.encode()
    return head + b",".join(texts) + b"]}"


def write(spoke: LeanSpoke, asked: Asked, resource: Resource, key: Key) -> tuple[int, bytes]:
    """Do a write."""
    given: Object = decode(asked.body) if asked.body else {}
    if asked.method == "POST":
        if resource.plural in REVIEWS:
            return 201, encode(given | {"status": REVIEWS[resource.plural]})
        if resource.namespaced:
            given["metadata"]["namespace"] = key.namespace
        return 201, text_of(resource, spoke.create(resource, given, asked.manager))
    if asked.method == "DELETE":
        uid = part(given, "preconditions").get("uid", "")
        return 200, text_of(resource, spoke.delete(resource, key, uid))
    if asked.method != "PATCH":
        raise Refused(405, "MethodNotAllowed")
    if asked.headers.get("content-type") == APPLY:
        stored = spoke.apply(resource, key, given, asked.manager)
    else:
        stored = spoke.patch(resource, key, given, asked.manager)
    return 200, text_of(resource, stored)


def event_line(event: Event, only_metadata: bool) -> bytes:
    """An event as a line."""
    return line(event.type, text_of(event.resource, event.stored, only_metadata=only_metadata))


def line(kind: str, text: bytes) -> bytes:
    """A line of a watch."""
    return b'{"type":"' + kind.encode() + b'","object":' + text + b"}\n"


def bookmark(resource: Resource, version: int, *, initial: bool = False) -> bytes:
    """The line that tells how far a watch has come."""
    meta: Object = {"resourceVersion": str(version)}
    if initial:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    marked = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    return line("BOOKMARK", encode(marked))


def chunk(content: bytes) -> bytes:
    """A part of an answer whose length nobody knows."""
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def response(code: int, body: bytes) -> bytes:
    """A whole answer."""
    head = f"HTTP/1.1 {code} {REASONS.get(code, 'Other')}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def status_text(refused: Refused) -> bytes:
    """A refusal as a server says it."""
    return encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": refused.code,
            "reason": refused.reason,
            "message": str(refused),
        }
    )
