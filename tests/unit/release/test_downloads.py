"""Downloads from servers that are slow, wrong, gone or hostile. The servers are real."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from knfleet.release.errors import FetchFailed, FetchRefused
from knfleet.release.source.address_guard import AddressGuard, AddressInfo
from knfleet.release.source.download import DownloadLimits, Downloads, shown
from testbed.fakes.sockets import loopback_socket

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MANIFEST = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: one\n"


@asynccontextmanager
async def serving(handler: Handler) -> AsyncGenerator[str]:
    """A web server on loopback that answers everything with one handler."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        bound = loopback_socket()
        await web.SockSite(runner, bound).start()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        await runner.cleanup()


async def manifest(_: web.Request) -> web.Response:
    return web.Response(text=MANIFEST, content_type="text/plain")


async def test_a_file_is_downloaded():
    async with serving(manifest) as server:
        assert (await Downloads().get(f"{server}/a.yaml")).decode() == MANIFEST


async def test_redirects_are_followed():
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/end.yaml":
            return web.Response(text=MANIFEST)
        raise web.HTTPFound("/end.yaml")

    async with serving(handler) as server:
        assert (await Downloads().get(f"{server}/start")).decode() == MANIFEST


class LoopbackOnly(AddressGuard):
    """The guard itself, and behind it a second one: no test leaves this machine if it fails."""

    def socket(self, address_info: AddressInfo) -> socket.socket:
        made = super().socket(address_info)
        address = str(address_info[4][0])
        if ip_address(address).is_loopback:
            return made
        made.close()
        raise AssertionError(f"the guard lets a connection to {address} pass")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("file:///etc/hostname", "redirects to file:"),
        ("gopher://127.0.0.1/", "redirects to gopher:"),
        ("http://169.254.169.254/latest/meta-data", r"169\.254\.169\.254, which is not allowed"),
        ("http://[fe80::1]/x", "fe80::1, which is not allowed"),
        ("http://[::ffff:169.254.169.254]/x", "which is not allowed"),
        ("http://2852039166/x", "is no valid URL"),
        ("/again", "redirects more than 5 times"),
    ],
)
async def test_a_redirect_leads_only_where_it_may(target: str, message: str):
    async def handler(_: web.Request) -> web.Response:
        raise web.HTTPFound(target)

    async with serving(handler) as server:
        with pytest.raises(FetchRefused, match=message):
            await Downloads(guard=LoopbackOnly).get(f"{server}/a.yaml")


class Names(AbstractResolver):
    """A name service that gives every name one address."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host=self.address, port=port, family=family, proto=0, flags=0
            )
        ]

    async def close(self) -> None:
        pass


async def test_a_name_that_stands_for_a_metadata_address_is_refused():
    downloads = Downloads(resolver=Names("169.254.169.254"), guard=LoopbackOnly)

    with pytest.raises(FetchRefused, match=r"leads to 169\.254\.169\.254"):
        await downloads.get("http://files.example.test/a.yaml")


@pytest.mark.parametrize(
    "url",
    ["file:///etc/hostname", "ftp://127.0.0.1/a", "http:///a.yaml", "http://[::1/a", "a.yaml"],
)
async def test_what_is_no_web_address_is_refused(url: str):
    with pytest.raises(FetchRefused):
        await Downloads(guard=LoopbackOnly).get(url)


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (404, FetchRefused, "there is no such file"),
        (403, FetchRefused, "requires a login"),
        (503, FetchFailed, "the server failed"),
        (429, FetchFailed, "the server failed"),
        (206, FetchRefused, "answered 206"),
    ],
)
async def test_every_status_but_200_is_an_error(status: int, error: type[Exception], message: str):
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, text=MANIFEST)

    async with serving(handler) as server:
        with pytest.raises(error, match=message) as caught:
            await Downloads().get(f"{server}/a.yaml")

    assert f"{server}/a.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("content_type", "text"),
    [("text/html", "hello"), ("text/plain", "\n<!DOCTYPE html><html></html>")],
)
async def test_a_web_page_is_no_manifest(content_type: str, text: str):
    async def handler(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type=content_type)

    async with serving(handler) as server:
        with pytest.raises(FetchRefused, match="web page"):
            await Downloads().get(f"{server}/a.yaml")


async def test_an_endless_body_is_cut_off():
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"#" * 65536)
            sent += 65536

    async with serving(handler) as server:
        with pytest.raises(FetchRefused, match="larger than 1024 KiB"):
            await Downloads(DownloadLimits(bytes=1024 * 1024)).get(f"{server}/a.yaml")

    assert sent < 64 * 1024 * 1024


async def test_a_size_that_is_announced_is_refused_unread():
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(5 * 1024**3)})
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async with serving(handler) as server:
        with pytest.raises(FetchRefused, match="larger than"):
            await Downloads().get(f"{server}/a.yaml")


async def test_compression_that_nobody_asked_for_is_refused():
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

    async with serving(handler) as server:
        with pytest.raises(FetchRefused, match="gzip-compressed"):
            await Downloads().get(f"{server}/a.yaml")


async def test_a_server_that_hangs_fails_in_time():
    async def handler(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(handler) as server:
        with pytest.raises(FetchFailed, match=r"no complete answer within 0\.2 s"):
            await Downloads(DownloadLimits(seconds=0.2)).get(f"{server}/a.yaml")


async def test_nobody_listening_is_told_with_the_address():
    with loopback_socket() as bound:
        port = bound.getsockname()[1]

    with pytest.raises(FetchFailed, match=f"127.0.0.1:{port}/a.yaml"):
        await Downloads().get(f"http://127.0.0.1:{port}/a.yaml")


async def test_a_copy_is_used_while_fresh_then_revalidated():
    asked: list[str] = []
    clock = [0.0]

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.headers.get("If-None-Match", ""))
        if asked[-1] == '"1"':
            return web.Response(status=304)
        return web.Response(text=MANIFEST, headers={"ETag": '"1"'})

    async with serving(handler) as server:
        downloads = Downloads(DownloadLimits(fresh_seconds=60), now=lambda: clock[0])
        await downloads.get(f"{server}/a.yaml")
        await downloads.get(f"{server}/a.yaml")
        assert asked == [""]

        clock[0] = 61
        assert (await downloads.get(f"{server}/a.yaml")).decode() == MANIFEST
        assert asked == ["", '"1"']


async def test_many_who_ask_at_once_cause_one_download():
    asked = 0

    async def handler(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text=MANIFEST)

    async with serving(handler) as server:
        downloads = Downloads()
        await asyncio.gather(*(downloads.get(f"{server}/a.yaml") for _ in range(20)))

    assert asked == 1
    assert downloads.asking == {}


async def test_a_server_that_fails_later_leaves_the_copy_in_use():
    answers = iter([200, 503, 404])
    clock = [0.0]

    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=next(answers), text=MANIFEST)

    async with serving(handler) as server:
        downloads = Downloads(DownloadLimits(fresh_seconds=60), now=lambda: clock[0])
        await downloads.get(f"{server}/a.yaml")
        clock[0] = 61
        assert (await downloads.get(f"{server}/a.yaml")).decode() == MANIFEST

        clock[0] = 122
        with pytest.raises(FetchRefused, match="no such file"):
            await downloads.get(f"{server}/a.yaml")


def test_passwords_and_signatures_are_not_shown():
    address = shown("https://user:secret@files.example.test:8443/a.yaml?signature=hidden#x")

    assert address == "https://files.example.test:8443/a.yaml?…"


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(str(request.url))
        return web.Response(text=MANIFEST)

    async with serving(handler) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "other.example.test")
        await Downloads().get("http://files.example.test/a.yaml")

    assert asked == ["http://files.example.test/a.yaml"]
