"""Downloads from addresses that users write down, with bounds on everything they can do.

An address may lead to `http` and `https` only, never to link-local or metadata addresses (looked
at when the socket is made, so that no name and no redirect gets around it), within limits of size
and time. A good copy is kept for a while, then revalidated, and used on when its server fails.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog
from aiohttp import ClientError, ClientResponse, ClientSession, InvalidURL, TCPConnector
from aiohttp.abc import AbstractResolver
from msgspec import Struct, structs

from knfleet import __version__
from knfleet.release.errors import FetchFailed, FetchRefused, ReleaseError
from knfleet.release.source.address_guard import AddressGuard, is_forbidden, is_literal

log = structlog.get_logger()

SCHEMES = ("http", "https")
REDIRECTS = (301, 302, 303, 307, 308)
CHUNK = 64 * 1024


class DownloadLimits(Struct, frozen=True):
    """How far a download may go."""

    bytes: int = 8 * 1024 * 1024
    seconds: float = 30
    redirects: int = 5
    fresh_seconds: float = 300
    """For how long a copy is used without asking its server."""
    kept_bytes: int = 64 * 1024 * 1024
    """How much of copies is kept."""


class DownloadedFile(Struct, frozen=True):
    """What an address answered, and how to ask whether it still does."""

    content: bytes
    etag: str = ""
    last_modified: str = ""
    checked: float = 0


class Downloads:
    """The files behind addresses, downloaded when needed and shared by all who ask."""

    def __init__(
        self,
        limits: DownloadLimits | None = None,
        *,
        resolver: AbstractResolver | None = None,
        guard: type[AddressGuard] = AddressGuard,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or DownloadLimits()
        self.resolver = resolver
        self.guard = guard
        self.now = now
        self.copies: OrderedDict[str, DownloadedFile] = OrderedDict()
        self.asking: dict[str, asyncio.Lock] = {}

    async def get(self, url: str) -> bytes:
        """The file at an address; raises `FetchFailed` or `FetchRefused` when there is none."""
        check_url(url)
        asking = self.asking.setdefault(url, asyncio.Lock())
        try:
            async with asking:
                held = self.copies.get(url)
                if held is None or self.now() - held.checked > self.limits.fresh_seconds:
                    held = await self.renew(url, held)
                    self.keep(url, held)
            return held.content
        finally:
            if not asking.locked():
                self.asking.pop(url, None)

    async def renew(self, url: str, held: DownloadedFile | None) -> DownloadedFile:
        """A copy that was confirmed now; the held one when its server fails."""
        try:
            return await self.download(url, held)
        except FetchFailed as error:
            if held is None:
                raise
            log.warning("download failed; the copy from before is used", error=str(error))
            return structs.replace(held, checked=self.now())

    def keep(self, url: str, copy: DownloadedFile) -> None:
        """Remember a copy, and forget those that were not used for longest."""
        self.copies[url] = copy
        self.copies.move_to_end(url)
        while sum(len(kept.content) for kept in self.copies.values()) > self.limits.kept_bytes:
            self.copies.popitem(last=False)

    async def download(self, url: str, held: DownloadedFile | None) -> DownloadedFile:
        """Ask the server, following redirects; every failure is a `ReleaseError`."""
        guard = self.guard()
        try:
            async with asyncio.timeout(self.limits.seconds), self.session(guard) as session:
                return await self.follow(session, url, held)
        except ReleaseError:
            raise
        except TimeoutError:
            raise FetchFailed(
                f"{shown(url)}: no complete answer within {self.limits.seconds:g} s; "
                f"check the address and the way to it"
            ) from None
        except InvalidURL as error:
            raise FetchRefused(f"{shown(url)}: is no valid URL: {error.description}") from None
        except (ClientError, OSError, ValueError) as error:
            if guard.refused:
                raise forbidden(url, guard.refused) from None
            raise FetchFailed(
                f"{shown(url)}: cannot be downloaded: {reason_of(error)}; "
                f"check the address and the way to it"
            ) from None

    @asynccontextmanager
    async def session(self, guard: AddressGuard) -> AsyncGenerator[ClientSession]:
        """A session for one download, whose sockets are looked at by the guard."""
        connector = TCPConnector(
            resolver=self.resolver, socket_factory=guard.socket, use_dns_cache=False
        )
        headers = {"User-Agent": f"knfleet/{__version__}", "Accept-Encoding": "identity"}
        async with ClientSession(
            connector=connector, headers=headers, auto_decompress=False, raise_for_status=False
        ) as session:
            yield session

    async def follow(
        self, session: ClientSession, url: str, held: DownloadedFile | None
    ) -> DownloadedFile:
        """The answer at the end of the redirects."""
        at = url
        for _ in range(self.limits.redirects + 1):
            headers = conditions(held) if held else {}
            async with session.get(
                at, headers=headers, allow_redirects=False, proxy=proxy_for(at)
            ) as response:
                if response.status not in REDIRECTS:
                    return await self.read(response, at, held)
                at = next_url(at, response.headers.get("Location", ""))
        raise FetchRefused(
            f"{shown(url)}: redirects more than {self.limits.redirects} times; "
            f"give the address where it ends"
        )

    async def read(
        self, response: ClientResponse, url: str, held: DownloadedFile | None
    ) -> DownloadedFile:
        """The content of a good answer, within the limits."""
        if response.status == 304 and held is not None:
            return structs.replace(held, checked=self.now())
        check_status(response.status, url)
        check_encoding(response, url)
        content = bytearray()
        if (response.content_length or 0) > self.limits.bytes:
            raise too_large(url, self.limits.bytes)
        async for chunk in response.content.iter_chunked(CHUNK):
            content += chunk
            if len(content) > self.limits.bytes:
                raise too_large(url, self.limits.bytes)
        check_content(response.content_type, bytes(content), url)
        return DownloadedFile(
            bytes(content),
            response.headers.get("ETag", ""),
            response.headers.get("Last-Modified", ""),
            self.now(),
        )


def shown(url: str) -> str:
    """An address for messages: without a password, and without what follows the path."""
    parts = urlsplit(url)
    query = "?…" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def check_url(url: str) -> None:
    """Refuse what is no address of a file on a web server."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise FetchRefused(f"{url.partition('@')[2] or url}: is no valid URL: {error}") from None
    if parts.scheme not in SCHEMES:
        raise FetchRefused(f"{shown(url)}: only http and https addresses can be downloaded")
    if not host:
        raise FetchRefused(f"{shown(url)}: names no server")
    if is_literal(host) and is_forbidden(host):
        raise forbidden(url, host)


def next_url(url: str, location: str) -> str:
    """Where a redirect leads, if it may lead there."""
    if not location:
        raise FetchFailed(f"{shown(url)}: redirects to nowhere; give another address")
    target = urljoin(url, location)
    scheme = urlsplit(target).scheme
    if scheme not in SCHEMES:
        raise FetchRefused(
            f"{shown(url)}: redirects to {scheme}:, which is not allowed; give another address"
        )
    if scheme == "http" and urlsplit(url).scheme == "https":
        raise FetchRefused(
            f"{shown(url)}: redirects from https to http, which is not allowed; "
            f"give another address"
        )
    check_url(target)
    return target


def check_status(status: int, url: str) -> None:
    """Refuse every answer but 200, saying what can be done about it."""
    if status == 200:
        return
    if status in (404, 410):
        raise FetchRefused(
            f"{shown(url)}: there is no such file ({status}); check the address and the version"
        )
    if status in (401, 403, 407):
        raise FetchRefused(
            f"{shown(url)}: the server requires a login ({status}); only files that everybody may "
            f"read can be used"
        )
    if status == 429 or status >= 500:
        raise FetchFailed(f"{shown(url)}: the server failed ({status}); it is retried")
    raise FetchRefused(f"{shown(url)}: the server answered {status}; check the address")


def check_encoding(response: ClientResponse, url: str) -> None:
    """Refuse compressed answers, which were not requested and whose size is unknown."""
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("", "identity"):
        raise FetchRefused(
            f"{shown(url)}: is sent {encoding}-compressed although that was not requested;"
            " serve the plain file"
        )


def check_content(content_type: str, content: bytes, url: str) -> None:
    """Refuse web pages, which servers like to send instead of files."""
    start = content[:256].lstrip().lower()
    if content_type == "text/html" or start.startswith((b"<!doctype html", b"<html")):
        raise FetchRefused(
            f"{shown(url)}: is a web page, not a manifest; give the address of the raw file"
        )


def forbidden(url: str, address: str) -> FetchRefused:
    """The error for a place where no download may go."""
    return FetchRefused(
        f"{shown(url)}: leads to {address}, which is not allowed (link-local and metadata "
        f"addresses are closed); give the address of a file server"
    )


def too_large(url: str, limit: int) -> FetchRefused:
    """The error for a file beyond the limit."""
    return FetchRefused(
        f"{shown(url)}: is larger than {limit // 1024} KiB; split it, or give another address"
    )


def reason_of(error: Exception) -> str:
    """What an error of the network says, without the address that it repeats."""
    cause = getattr(error, "os_error", None) or error
    return getattr(cause, "strerror", None) or str(cause) or type(error).__name__


def conditions(held: DownloadedFile) -> dict[str, str]:
    """Headers that ask for an answer only if the file changed."""
    headers: dict[str, str] = {}
    if held.etag:
        headers["If-None-Match"] = held.etag
    if held.last_modified:
        headers["If-Modified-Since"] = held.last_modified
    return headers


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for an address, if any."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "127.0.0.1", "::1") or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)
