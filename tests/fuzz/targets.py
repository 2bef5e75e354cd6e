"""What is fuzzed: one function for each kind of input, which fails when something must not happen.

A reader may refuse bytes, by its own kind of error alone; what it accepts must hold what its users
rely on. An error never shows a secret: wherever the bytes have `SECRET`, the message must not.
"""

import asyncio
import base64
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from unittest import mock

from aiohttp import StreamReader, web
from aiohttp.test_utils import make_mocked_request

from knfleet.api.addon.names import ADDON_LABEL
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Object
from knfleet.cloudevents import cloud_event, event_types, object_events, work_events
from knfleet.cloudevents.cloud_event import CloudEvent, EventError
from knfleet.hub.addon.registration import certificate_rules
from knfleet.hub.registration.drivers.csr_rules import AgentCertificateRequest, examine
from knfleet.kube import yaml
from knfleet.kube.auth import kubeconfig
from knfleet.kube.auth.credentials import is_token
from knfleet.kube.auth.exec_plugin import ExecPlugin
from knfleet.kube.cache.watch import event_of
from knfleet.kube.client.responses import HttpResponse, as_error, as_object
from knfleet.kube.errors import BadResponse, ConfigError, CredentialError, KubeError
from knfleet.runtime.mux.frames import DATA_LIMIT, HEADER, SIZES, FrameReader, ProtocolError, encode
from knfleet.web.pages.actions import ActionFailed, ActionRequest, patch_for
from knfleet.web.pages.routes import KINDS, MOST_PAGES, route_of
from knfleet.web.server.request_checks import read_form
from knfleet.web.server.sessions import WebSession

SECRET = "s3cretS3cret"
"""Stands for a token, a key or a password in seeds."""
PLUGIN = ExecPlugin("plugin")
CLUSTER = "east"
ADDON = "hello"
FORM_BYTES = 64 * 1024
MESSAGE_CHARACTERS = 3000
CONTENT_TYPES = (
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
    "application/x-www-form-urlencoded; charset=utf-16",
    "multipart/form-data",
    "text/plain",
)
Check = Callable[[bytes], None]


def in_words(error: BaseException) -> None:
    """An error says something, and not too much."""
    assert 0 < len(str(error)) < MESSAGE_CHARACTERS, type(error)


def no_secret(data: bytes, error: BaseException) -> None:
    """An error that is shown to people must not show what may be a secret."""
    assert SECRET.encode() not in data or SECRET not in str(error), "a message shows a secret"


def read_kubeconfig(data: bytes) -> None:
    """A kubeconfig in a Secret: it may name no file and no program of this machine."""
    try:
        connection = kubeconfig.from_text(data, source="fuzz")
    except ConfigError as error:
        no_secret(data, error)
        return
    assert connection.endpoint.server.startswith(("https://", "http://"))
    assert SECRET not in repr(connection)


def read_yaml(data: bytes) -> None:
    """Manifests: what is read can be written, and is then read as the same."""
    try:
        found = yaml.load_all(data)
    except yaml.YamlError as error:
        in_words(error)
        return
    assert all(is_json(each) for each in found)
    try:
        written = yaml.dump_all(found)
    except yaml.YamlError:
        return
    assert yaml.load_all(written) == [each for each in found if each is not None]


def is_json(value: Any) -> bool:
    """Whether a value is one that JSON has."""
    if yaml.is_mapping(value):
        return all(type(key) is str and is_json(inner) for key, inner in value.items())
    if yaml.is_list(value):
        return all(is_json(inner) for inner in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int | bool)


def read_credential(data: bytes) -> None:
    """What a credential plugin prints."""
    try:
        found = PLUGIN.credential(data)
    except CredentialError as error:
        no_secret(data, error)
        return
    assert found.token or (found.client_certificate and found.client_key)
    assert found.token is None or is_token(found.token)
    assert SECRET not in repr(found)


def read_request(data: bytes) -> None:
    """The certificate request of an agent or an add-on, which an API server has accepted."""
    spec: Object = {
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["digital signature", "key encipherment", "client auth"],
        "request": base64.b64encode(data).decode(),
        "username": "system:serviceaccount:open-cluster-management:agent",
    }
    labels = {"open-cluster-management.io/cluster-name": CLUSTER}
    labels_of_addon = {**labels, ADDON_LABEL: ADDON}
    asked = certificate_rules.examine({"metadata": {"labels": labels_of_addon}, "spec": spec})
    if isinstance(asked, certificate_rules.AddOnRequest):
        assert (asked.cluster, asked.addon) == (CLUSTER, ADDON)
        assert asked.common_name
    else:
        assert asked.reason
    found = examine({"metadata": {"name": "csr", "labels": labels}, "spec": spec})
    if isinstance(found, AgentCertificateRequest):
        assert found.cluster == CLUSTER
        assert found.common_name == f"system:open-cluster-management:{CLUSTER}:{found.agent}"
        assert found.agent
    else:
        assert found.reason


def read_answers(data: bytes) -> None:
    """What an API server answers, or whatever is at its address."""
    for code in (200, 500):
        answer = HttpResponse(code, data, "application/json")
        assert isinstance(as_error(answer, "here"), KubeError)
        try:
            found = as_object(answer, "here")
        except BadResponse as error:
            in_words(error)
        else:
            assert is_json(found)
    try:
        event_of(data, "here", SERVINGS)
    except KubeError as error:
        in_words(error)


def read_frames(data: bytes) -> None:
    """Bytes from a tunnel: the same frames however they are cut, and little is kept."""
    whole = frames_of([data])
    cut = data[0] if data else 1
    parts = [data[at : at + cut + 1] for at in range(0, len(data), cut + 1)]
    assert frames_of(parts) == whole
    sent = b"".join(encode(each) for each in whole)
    assert data.startswith(sent)


def frames_of(parts: list[bytes]) -> list[Any]:
    """The frames in what arrives, up to the first that is not allowed."""
    reader, found = FrameReader(), list[Any]()
    try:
        for part in parts:
            for frame in reader.feed(part):
                least, most = SIZES[frame.kind]
                assert least <= len(frame.payload) <= most
                found.append(frame)
            assert len(reader.buffer) <= HEADER.size + DATA_LIMIT
    except ProtocolError as error:
        in_words(error)
    return found


def read_events(data: bytes) -> None:
    """What a gRPC client or server sends, to its last field."""
    for read in (cloud_event.read_event, cloud_event.read_publish):
        try:
            event = read(data)
        except EventError:
            continue
        read_contents(event)
    try:
        wanted = cloud_event.read_subscription(data)
    except EventError:
        return
    assert wanted.cluster


def read_contents(event: CloudEvent) -> None:
    """What an event carries, read as everything that it could be."""
    assert len(event.extensions) <= cloud_event.MOST_EXTENSIONS
    for read in (work_events.read_bundle, work_events.read_status, object_events.read_object):
        try:
            read(event)
        except EventError:
            continue
    try:
        kind = event_types.read_event_type(event.type)
        manifest = object_events.read_object(event)
    except EventError:
        return
    object_events.cluster_of(event_types.RESOURCES[kind.data_type], manifest)


MANIFEST: Object = {
    "kind": SERVINGS.kind,
    "metadata": {"name": "knative", "namespace": "knative-serving", "resourceVersion": "7"},
    "status": {"version": "1.21.2"},
}
KNOWN = ("1.21.2", "1.22.1", "1.23.0")
LOOP = asyncio.new_event_loop()


def read_forms(data: bytes) -> None:
    """A form that a browser sends, and the address of a page."""
    LOOP.run_until_complete(read_form_bytes(data))
    path, _, query = data.decode("utf-8", "surrogateescape").partition("?")
    found = route_of(path, {"q": query, "page": query[:5]})
    if found is not None:
        assert 1 <= found.number <= MOST_PAGES
        assert found.name != "install" or found.parts[0] in KINDS


async def read_form_bytes(data: bytes) -> None:
    """Read a form as the dashboard does: the first byte chooses how it is sent."""
    kind = CONTENT_TYPES[data[0] % len(CONTENT_TYPES)] if data else CONTENT_TYPES[0]
    body = StreamReader(mock.Mock(_reading_paused=False), FORM_BYTES, loop=LOOP)
    body.feed_data(data[1:])
    body.feed_eof()
    request = make_mocked_request(
        "POST", "/", {"Content-Type": kind}, payload=body, client_max_size=FORM_BYTES
    )
    try:
        form = await read_form(request)
    except (web.HTTPBadRequest, web.HTTPRequestEntityTooLarge) as error:
        in_words(error)
        return
    session = WebSession("id", "user", mock.Mock(), "right", 0.0)
    assert session.allows(form.get("csrf", "")) == (form.get("csrf") == "right")
    assert is_token(form.get("token", "")) in (True, False)
    for action in ("retry", "upgrade"):
        wish = ActionRequest(action, "user", form.get("version", ""))
        try:
            patch = patch_for(wish, MANIFEST, KNOWN, datetime.now(UTC))
        except ActionFailed as error:
            in_words(error)
        else:
            assert re.fullmatch("[a-z]+", "".join(sorted(patch)))


TARGETS: dict[str, Check] = {
    "kubeconfig": read_kubeconfig,
    "yaml": read_yaml,
    "exec-credential": read_credential,
    "csr": read_request,
    "api-answers": read_answers,
    "frames": read_frames,
    "cloudevents": read_events,
    "forms": read_forms,
}
