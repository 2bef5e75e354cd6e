"""What a client makes of servers that misbehave."""

import asyncio
import gc
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import msgspec
import pytest

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import ClusterName, Key
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import (
    AlreadyExists,
    BadResponse,
    ConfigError,
    Conflict,
    ConnectionInterrupted,
    ConnectionRefused,
    CredentialError,
    DnsFailed,
    Invalid,
    KubeError,
    NotFound,
    ProxyFailed,
    RequestTimeout,
    ServerError,
    Throttled,
    TlsFailed,
    Unauthorized,
)
from testbed.fakes.certificates import Authority
from testbed.fakes.clients import QUICK, SECRET, Certificates, Heard, Tokens, client_for
from testbed.fakes.proxies import HttpProxy
from testbed.fakes.server import (
    Asked,
    Behaviour,
    Server,
    answer,
    cut_body,
    drop,
    server_context,
    silence,
    status,
    stream,
)
from testbed.fakes.sockets import loopback_socket

CM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}}
KEY = Key("n", "a")
fine = answer(CM)
throttled = status(429, "TooManyRequests", headers={"Retry-After": "0"})
leaving = status(
    503, "ServiceUnavailable", "apiserver is shutting down", headers={"Retry-After": "0"}
)
broken = status(500, "InternalError")


VERBS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "get": lambda client: client.get(CONFIG_MAPS, "a", "n"),
    "apply": lambda client: client.apply(CONFIG_MAPS, CM),
    "replace": lambda client: client.replace(CONFIG_MAPS, CM),
    "merge": lambda client: client.patch(CONFIG_MAPS, KEY, {"data": {}}),
    "json with test": lambda client: client.patch(CONFIG_MAPS, KEY, [{"op": "test"}]),
    "json": lambda client: client.patch(CONFIG_MAPS, KEY, [{"op": "add"}]),
    "delete by uid": lambda client: client.delete(CONFIG_MAPS, KEY, uid="u"),
    "delete": lambda client: client.delete(CONFIG_MAPS, KEY),
    "collection": lambda client: client.delete_collection(CONFIG_MAPS, "n"),
    "create": lambda client: client.create(CONFIG_MAPS, CM),
    "dry create": lambda client: client.create(CONFIG_MAPS, CM, dry_run=True),
}
REPEATABLE = ["get", "apply", "replace", "merge", "json with test", "delete by uid", "dry create"]
ONCE = ["json", "delete", "collection", "create"]


@pytest.mark.parametrize("refused", [throttled, leaving])
@pytest.mark.parametrize("verb", REPEATABLE + ONCE)
async def test_a_request_that_no_handler_saw_is_sent_again(verb: str, refused: Behaviour) -> None:
    """A throttled one, or one for a CRD that just changed; any verb may be repeated."""
    async with Server(refused, refused, fine) as server, client_for(server.url) as client:
        await VERBS[verb](client)

        assert len(server.requests) == 3
        assert len({(asked.path, asked.body) for asked in server.requests}) == 1


@pytest.mark.parametrize("failure", [broken, status(503, "x"), drop, cut_body(CM, 20)])
@pytest.mark.parametrize("verb", REPEATABLE)
async def test_what_may_be_done_twice_is_sent_again(verb: str, failure: Behaviour) -> None:
    """Failures of the server and lost answers do not reach those who can ask again."""
    async with Server(failure, fine) as server, client_for(server.url) as client:
        await VERBS[verb](client)

        assert len(server.requests) == 2


@pytest.mark.parametrize("failure", [broken, status(504, "Timeout"), drop, cut_body(CM, 20)])
@pytest.mark.parametrize("verb", ONCE)
async def test_what_must_not_be_done_twice_is_sent_once(verb: str, failure: Behaviour) -> None:
    """The error tells that it may have been done."""
    async with Server(failure, fine) as server, client_for(server.url) as client:
        with pytest.raises(KubeError, match="may have been") as raised:
            await VERBS[verb](client)

        assert len(server.requests) == 1
        assert isinstance(raised.value, ServerError | ConnectionInterrupted)


@pytest.mark.parametrize("verb", REPEATABLE + ONCE)
async def test_a_dropped_keep_alive_connection_is_told_apart_by_verb(verb: str) -> None:
    """The server closed the idle connection as the request was on its way."""
    async with Server(fine, drop, fine) as server, client_for(server.url) as client:
        await client.get(CONFIG_MAPS, "a", "n")
        if verb in ONCE:
            with pytest.raises(ConnectionInterrupted, match="may have been"):
                await VERBS[verb](client)
        else:
            await VERBS[verb](client)

        assert (2 if verb in ONCE else 3) == len(server.requests)
        assert server.requests[1].connection == server.requests[0].connection


async def test_a_create_that_never_left_is_tried_again_and_then_refused_without_doubt() -> None:
    """Nothing was sent, so nothing may have been created."""
    heard = Heard()
    with loopback_socket() as listening:
        port = listening.getsockname()[1]
    options = msgspec.structs.replace(QUICK, observe=heard, attempts=3)
    async with client_for(f"http://127.0.0.1:{port}", options=options) as client:
        with pytest.raises(ConnectionRefused) as raised:
            await client.create(CONFIG_MAPS, CM)

    assert "may have been" not in str(raised.value)
    assert heard.requests == [("create", 0)] * 3


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_longer_wait_than_the_deadline_fails_at_once(form: str) -> None:
    """Waiting for an hour and then failing helps nobody; the caller learns how long to wait."""
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    wait = {"seconds": "3600", "date": date}[form]
    throttle = status(429, "TooManyRequests", headers={"Retry-After": wait})
    async with Server(throttle) as server, client_for(server.url) as client:
        with pytest.raises(Throttled) as raised:
            await client.get(CONFIG_MAPS, "a", "n")

        assert len(server.requests) == 1
        assert 3500 < (raised.value.retry_after_seconds or 0) <= 3600


async def test_attempts_are_counted() -> None:
    """A server that stays broken is asked five times, not for ever."""
    async with Server(broken) as server, client_for(server.url) as client:
        with pytest.raises(ServerError):
            await client.get(CONFIG_MAPS, "a", "n")

        assert QUICK.attempts == len(server.requests)


async def test_a_status_becomes_an_error_with_all_its_facts() -> None:
    """Code, reason, causes and place are there for programs; the message for people."""
    details = {
        "causes": [{"field": "spec.x", "message": "must be y", "reason": "FieldValueInvalid"}]
    }
    no = status(422, "Invalid", "x is wrong", details=details)
    async with Server(no) as server, client_for(server.url) as client:
        with pytest.raises(Invalid) as raised:
            await client.apply(CONFIG_MAPS, CM)

    assert raised.value.code == 422
    assert raised.value.reason == "Invalid"
    assert raised.value.causes == (("spec.x", "must be y"),)
    assert raised.value.where == "spoke: PATCH /api/v1/namespaces/n/configmaps/a"
    assert f"{raised.value.where}: x is wrong" == str(raised.value)


async def test_two_kinds_of_409_are_told_apart() -> None:
    """One asks to read again, the other says that it is there."""
    async with (
        Server(status(409, "AlreadyExists"), status(409, "Conflict")) as server,
        client_for(server.url) as client,
    ):
        with pytest.raises(AlreadyExists):
            await client.create(CONFIG_MAPS, CM)
        with pytest.raises(Conflict):
            await client.replace(CONFIG_MAPS, CM)


async def test_the_plain_text_of_a_filter_is_an_answer_too() -> None:
    """An API server says 404 in plain text when it does not serve the path at all."""
    text = answer("404 page not found\n", 404, content_type="text/plain; charset=utf-8")
    async with Server(text) as server, client_for(server.url) as client:
        with pytest.raises(NotFound, match="404 page not found"):
            await client.list(CONFIG_MAPS)


@pytest.mark.parametrize("code", [200, 302, 403, 502])
async def test_a_web_page_is_no_answer(code: int) -> None:
    """The message names path and status and quotes the beginning, on one line."""
    page = answer("<html>\n<h1>Sign in</h1>" + "x" * 9000, code, content_type="text/html")
    async with Server(page) as server, client_for(server.url) as client:
        with pytest.raises(BadResponse) as raised:
            await client.get(CONFIG_MAPS, "a", "n")

    message = str(raised.value)
    assert f"spoke: GET /api/v1/namespaces/n/configmaps/a: status {code} with text/html" in message
    assert "<html> <h1>Sign in</h1>" in message
    assert len(message) < 400


@pytest.mark.parametrize("body", ["{", "[]", "null", "17", ""])
async def test_garbage_is_no_answer(body: str) -> None:
    """Not even when it calls itself JSON."""
    async with Server(answer(body)) as server, client_for(server.url) as client:
        with pytest.raises(BadResponse):
            await client.get(CONFIG_MAPS, "a", "n")
        with pytest.raises(BadResponse):
            await client.list(CONFIG_MAPS)


@pytest.mark.parametrize("announced", [True, False])
async def test_an_answer_that_is_too_large_is_not_read(announced: bool) -> None:
    """Whether the server says how large it is or not."""
    body = b'{"data":"' + b"x" * 100_000 + b'"}'
    options = msgspec.structs.replace(QUICK, answer_limit_bytes=50_000)
    huge = answer(body) if announced else stream(body)
    async with Server(huge) as server, client_for(server.url, options=options) as client:
        with pytest.raises(BadResponse, match="larger than 50000 bytes"):
            await client.get(CONFIG_MAPS, "a", "n")

        assert len(server.requests) == 1


async def test_an_object_of_many_megabytes_goes_both_ways() -> None:
    """Nothing between us and the limit is special."""
    big = {**CM, "data": {"x": "y" * 3_000_000}}
    async with Server(answer(big)) as server, client_for(server.url) as client:
        assert big == await client.apply(CONFIG_MAPS, big)
        assert big == msgspec.json.decode(server.requests[0].body)


async def test_a_rejected_token_is_replaced_once() -> None:
    """One new login, one more attempt, even for a create: the server did not look at it."""
    tokens, heard = Tokens(), Heard()
    options = msgspec.structs.replace(QUICK, observe=heard)
    async with (
        Server(status(401, "Unauthorized"), fine) as server,
        client_for(server.url, credentials=tokens, options=options) as client,
    ):
        await client.create(CONFIG_MAPS, CM)

        sent = [asked.headers["authorization"] for asked in server.requests]
        assert [f"Bearer {SECRET}-1", f"Bearer {SECRET}-2"] == sent
        assert server.connections == 1
        assert heard.refreshed == 2


async def test_a_token_that_stays_rejected_is_an_error() -> None:
    """And the token is not in it."""
    tokens = Tokens()
    no = status(401, "Unauthorized", "who are you")
    async with Server(no) as server, client_for(server.url, credentials=tokens) as client:
        with pytest.raises(Unauthorized) as raised:
            await client.get(CONFIG_MAPS, "a", "n")

        assert len(server.requests) == 2
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(raised.value)


async def test_a_token_that_cannot_be_sent_is_not_quoted() -> None:
    """A file with a line end in the middle, or the wrong file."""
    bad = Certificates(Credential(token=f"{SECRET}\n{SECRET}"))
    async with client_for("http://127.0.0.1:1", credentials=bad) as client:
        with pytest.raises(CredentialError) as raised:
            await client.get(CONFIG_MAPS, "a", "n")
    assert SECRET not in str(raised.value)


async def test_fifty_requests_with_a_rejected_token_log_in_once() -> None:
    """A login may be a program that takes seconds."""
    tokens = Tokens()

    async def only_second(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        known = asked.headers["authorization"].endswith("-2")
        return await (fine if known else status(401, "Unauthorized"))(asked, writer)

    async with Server(only_second) as server, client_for(server.url, credentials=tokens) as client:
        await asyncio.gather(*(client.get(CONFIG_MAPS, "a", "n") for _ in range(50)))

    assert tokens.fetched == 2


class Stuck:
    """A login that never ends."""

    async def fetch(self) -> Credential:
        """Wait for ever."""
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_deadline_says_what_was_waited_for() -> None:
    """A login, a slot, a connection or an answer."""
    brief = msgspec.structs.replace(QUICK, concurrency=1, reserve=0)
    async with Server(silence) as server:
        async with client_for(server.url, credentials=Stuck()) as client:
            with pytest.raises(RequestTimeout, match=r"0\.1 s passed waiting for a login"):
                await client.get(CONFIG_MAPS, "a", "n", deadline=0.1)
        async with client_for(server.url, options=brief) as client:
            first = asyncio.create_task(client.get(CONFIG_MAPS, "a", "n", deadline=0.3))
            await asyncio.wait_for(server.arrived.wait(), 10)
            with pytest.raises(RequestTimeout, match="waiting for a free slot"):
                await client.create(CONFIG_MAPS, CM, deadline=0.1)
            with pytest.raises(RequestTimeout, match="waiting for an answer"):
                await first
            with pytest.raises(RequestTimeout, match="an answer; the object may have been created"):
                await client.create(CONFIG_MAPS, CM, deadline=0.1)


async def test_a_server_that_does_not_shake_hands_is_waited_for_as_a_connection() -> None:
    """Accepting a connection is not yet an answer, so nothing was sent."""
    with loopback_socket() as listening:
        port = listening.getsockname()[1]
        async with client_for(f"https://127.0.0.1:{port}") as client:
            with pytest.raises(RequestTimeout, match="waiting for a connection") as raised:
                await client.create(CONFIG_MAPS, CM, deadline=0.2)

    assert "may have been" not in str(raised.value)


async def test_one_attempt_to_connect_does_not_use_up_the_deadline() -> None:
    """A connection that hangs is given up early enough to try another."""
    options = msgspec.structs.replace(QUICK, connect_seconds=0.05, attempts=2)
    with loopback_socket() as listening:
        port = listening.getsockname()[1]
        async with client_for(f"https://127.0.0.1:{port}", options=options) as client:
            with pytest.raises(RequestTimeout, match=r"no connection to 127\.0\.0\.1"):
                await client.get(CONFIG_MAPS, "a", "n")


async def test_a_list_has_one_deadline_for_all_its_pages() -> None:
    """Otherwise a slow server could make it last for ever."""
    page = answer({"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []})
    async with Server(page) as server, client_for(server.url) as client:
        with pytest.raises(RequestTimeout, match="GET /api/v1/configmaps"):
            await client.list(CONFIG_MAPS, deadline=0.2)


async def test_a_name_that_does_not_resolve() -> None:
    """Told apart from a server that is down."""
    options = msgspec.structs.replace(QUICK, attempts=1)
    # Longer than any name can be, so that no name server is asked.
    name = ".".join(["nowhere" * 8] * 6)
    async with client_for(f"https://{name}:6443", options=options) as client:
        with pytest.raises(DnsFailed, match="does not resolve"):
            await client.version()


@pytest.mark.parametrize(
    ("days", "trusted", "name", "words"),
    [
        (30, False, None, "unable to get local issuer certificate"),
        (-1, True, None, "certificate has expired"),
        (30, True, "elsewhere.example", "Hostname mismatch"),
    ],
)
async def test_certificates_that_do_not_fit(
    days: int, trusted: bool, name: str | None, words: str
) -> None:
    """The message says what is wrong with them, and nothing is tried again."""
    authority, heard = Authority(), Heard()
    ca = authority.pem if trusted else Authority("another").pem
    options = msgspec.structs.replace(QUICK, observe=heard)
    async with Server(fine, tls=server_context(authority.server(days=days))) as server:
        endpoint = Endpoint(server.url, ca=ca, tls_server_name=name)
        async with client_for(endpoint, options=options) as client:
            with pytest.raises(TlsFailed, match=words):
                await client.get(CONFIG_MAPS, "a", "n")

    assert len(heard.requests) == 1


async def test_a_certificate_for_another_name_fits_with_a_server_name() -> None:
    """As does any certificate when nobody looks."""
    authority = Authority()
    async with Server(fine, tls=server_context(authority.server("api.example"))) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        named = Endpoint(url, ca=authority.pem, tls_server_name="api.example")
        for endpoint in (named, Endpoint(url, insecure=True)):
            async with client_for(endpoint) as client:
                assert await client.get(CONFIG_MAPS, "a", "n") == CM


async def test_a_client_certificate_is_shown_and_a_new_one_replaces_it() -> None:
    """A new one is used at once, on a new connection, and no file stays behind."""
    authority = Authority()
    first, second = authority.client("first"), authority.client("second")
    source = Certificates(
        Credential(client_certificate=first.certificate, client_key=first.key, expires=soon())
    )
    names: list[str] = []

    async def who(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        certificate = writer.get_extra_info("ssl_object").getpeercert()
        names.append(dict(entry[0] for entry in certificate["subject"])["commonName"])
        return await fine(asked, writer)

    before = current_descriptors()
    context = server_context(authority.server(), client_ca=authority.pem)
    async with (
        Server(who, tls=context) as server,
        client_for(Endpoint(server.url, ca=authority.pem), credentials=source) as client,
    ):
        await client.get(CONFIG_MAPS, "a", "n")
        source.credential = Credential(client_certificate=second.certificate, client_key=second.key)
        await client.get(CONFIG_MAPS, "a", "n")

        assert names == ["first", "second"]
        assert [asked.connection for asked in server.requests] == [1, 2]
    gc.collect()
    leaked = [entry for entry in before ^ current_descriptors() if "memfd" in target(entry)]
    assert leaked == []


def soon() -> datetime:
    """An expiry so near that the credential is used once, and asked for again."""
    return datetime.now(UTC)


def current_descriptors() -> set[Path]:
    """The descriptors that are open."""
    folder = Path("/proc/self/fd")
    return set(folder.iterdir()) if folder.exists() else set[Path]()


def target(entry: Path) -> str:
    """What a descriptor is."""
    try:
        return str(entry.readlink())
    except OSError:
        return ""


async def test_a_server_that_wants_a_certificate_we_do_not_have() -> None:
    """Such a server refuses only after our side of the handshake; it is still about TLS."""
    authority = Authority()
    context = server_context(authority.server(), client_ca=authority.pem)
    with loopback_socket() as listening:
        endpoint = Endpoint(f"https://127.0.0.1:{listening.getsockname()[1]}", ca=authority.pem)

        def refuse() -> None:
            accepted, _ = listening.accept()
            wrapped = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            with suppress(ssl.SSLError):
                wrapped.do_handshake()
            with socket.socket(fileno=wrapped.detach()) as bare:
                # Reading on keeps the reason from being lost to a reset.
                bare.shutdown(socket.SHUT_WR)
                while bare.recv(65536):
                    pass

        async with client_for(endpoint) as client, asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(refuse))
            with pytest.raises(TlsFailed, match=r"(?i)certificate.required"):
                await client.get(CONFIG_MAPS, "a", "n")


async def test_a_client_certificate_that_is_none() -> None:
    """The error does not quote the key."""
    bad = Certificates(Credential(client_certificate=b"-----", client_key=SECRET.encode()))
    async with client_for("https://127.0.0.1:1", credentials=bad) as client:
        with pytest.raises(CredentialError) as raised:
            await client.get(CONFIG_MAPS, "a", "n")
    assert SECRET not in str(raised.value)


async def test_a_proxy_carries_requests_and_is_told_who_we_are() -> None:
    """Its password appears in no URL."""
    authority = Authority()
    async with (
        Server(fine, tls=server_context(authority.server())) as server,
        HttpProxy(authorization="Basic dTpw") as proxy,
    ):
        through = proxy.url.replace("127", "u:p@127", 1)
        endpoint = Endpoint(server.url, ca=authority.pem, proxy_url=through)
        async with client_for(endpoint) as client:
            assert await client.get(CONFIG_MAPS, "a", "n") == CM

        assert [f"CONNECT 127.0.0.1:{server.port}"] == proxy.asked


async def test_a_proxy_that_refuses_or_is_not_there() -> None:
    """Both are the proxy's fault, and say so without its password."""
    options = msgspec.structs.replace(QUICK, attempts=1)
    async with HttpProxy() as proxy:
        proxy.refusing = True
        url = proxy.url.replace("127", f"u:{SECRET}@127", 1)
        endpoint = Endpoint("https://127.0.0.1:1", proxy_url=url)
        async with client_for(endpoint, options=options) as client:
            with pytest.raises(ProxyFailed, match="answered 403 Not From Here") as refused:
                await client.version()
    async with client_for(endpoint, options=options) as client:
        with pytest.raises(ProxyFailed, match="is not there") as gone:
            await client.version()
    assert SECRET not in f"{refused.value!r}{gone.value!r}"


@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        ("https://127.0.0.1:1", "socks5://127.0.0.1:1"),
        ("ftp://127.0.0.1", None),
        ("nonsense", None),
        ("https://", None),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused_at_once(server: str, proxy: str | None) -> None:
    """Before anybody waits for it."""
    endpoint = Endpoint(server, proxy_url=proxy)
    with pytest.raises(ConfigError):
        Client(Connection(ClusterName("spoke"), endpoint, StaticCredential()))


async def test_a_path_in_the_server_url_stays_in_front() -> None:
    """Clusters behind a gateway have one."""
    async with Server(fine) as server, client_for(f"{server.url}/k8s/c-1/") as client:
        await client.get(CONFIG_MAPS, "a", "n")

        assert server.requests[0].path == "/k8s/c-1/api/v1/namespaces/n/configmaps/a"


async def test_a_burst_does_not_keep_the_urgent_waiting() -> None:
    """A few slots are kept for lease renewals and probes."""
    options = msgspec.structs.replace(QUICK, concurrency=3, reserve=1)
    async with Server(silence) as server, client_for(server.url, options=options) as client:
        burst = [asyncio.create_task(client.get(CONFIG_MAPS, "a", "n")) for _ in range(10)]
        while len(server.requests) < 2:
            server.arrived.clear()
            await asyncio.wait_for(server.arrived.wait(), 10)
        server.script = [fine]

        assert await client.urgent.get(CONFIG_MAPS, "a", "n") == CM
        assert len(server.requests) == 3
        for task in burst:
            task.cancel()
        await asyncio.gather(*burst, return_exceptions=True)


async def test_a_closed_client_says_so() -> None:
    """And opens nothing again."""
    async with Server(fine) as server, client_for(server.url) as client:
        await client.close()
        with pytest.raises(KubeError, match="the client is closed"):
            await client.get(CONFIG_MAPS, "a", "n")

        assert server.connections == 0


async def test_errors_leave_no_task_behind() -> None:
    """Whatever went wrong, and however often."""
    failures = [drop, broken, cut_body(CM, 3), status(401, "Unauthorized"), answer("<", 502)]
    async with Server(*failures, *failures, fine) as server:
        before = asyncio.all_tasks()
        async with client_for(server.url, options=ClientOptions(attempts=1)) as client:
            for _ in range(len(failures) * 2 + 1):
                try:
                    await client.apply(CONFIG_MAPS, CM)
                except KubeError:
                    continue
        await asyncio.sleep(0)
        mine = asyncio.all_tasks() - before - server.handlers

        assert set() == mine
