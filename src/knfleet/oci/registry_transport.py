"""Requests to registries: logins, redirects, repeated attempts, and what answers mean.

Logins go to the registry's own host and never along a redirect to another.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
from aiohttp import (
    ClientConnectorCertificateError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    InvalidURL,
    TCPConnector,
)
from msgspec import Struct

from knfleet import __version__
from knfleet.kube.untrusted_json import decode_json
from knfleet.oci.errors import (
    BadReference,
    MissingImage,
    RegistryFailed,
    RegistryRefused,
)
from knfleet.oci.image_reference import RegistryPlace, is_loopback
from knfleet.oci.registry_login import RegistryLogins
from knfleet.oci.registry_token import authorization, challenge
from knfleet.release.source.address_guard import AddressGuard
from knfleet.release.source.download import proxy_for, reason_of

CHUNK = 256 * 1024
REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 5
ATTEMPTS = 4
WAIT_SECONDS = 1.0
MOST_WAIT_SECONDS = 30.0
IDLE_SECONDS = 60.0
"""A transfer without a byte for so long has failed."""
MOST_REASON = 64 * 1024


class AnsweredError(Struct, frozen=True):
    """An error as registries answer it."""

    code: str = ""


class RegistryAnswer(Struct, frozen=True):
    """The body of an answer that is not good."""

    errors: tuple[AnsweredError, ...] = ()


T = TypeVar("T")
BodyFactory = Callable[[], AsyncIterator[bytes]]


class RegistryTransport:
    """Requests to registries with one session; a context manager."""

    def __init__(
        self,
        logins: RegistryLogins,
        *,
        ca_file: Path | None = None,
        wait_seconds: float = WAIT_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.logins = logins
        self.ca_file = ca_file
        self.wait_seconds, self.idle_seconds = wait_seconds, idle_seconds
        self.guard = AddressGuard()
        self.authorizations: dict[tuple[str, str], str] = {}

    async def __aenter__(self) -> Self:
        context = trusted(self.ca_file)
        self.session = ClientSession(
            connector=TCPConnector(ssl=context, socket_factory=self.guard.socket, limit_per_host=8),
            headers={"User-Agent": f"knfleet/{__version__}", "Accept-Encoding": "identity"},
            timeout=ClientTimeout(total=None, sock_connect=30, sock_read=self.idle_seconds),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def repeated(self, where: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Make requests again that failed for the moment."""
        for number in range(1, ATTEMPTS + 1):
            try:
                return await attempt()
            except RegistryFailed as error:
                if number == ATTEMPTS:
                    raise RegistryFailed(
                        f"{error}; {ATTEMPTS} attempts failed, try later"
                    ) from None
            except (ClientError, OSError, TimeoutError) as error:
                if self.guard.refused:
                    raise RegistryRefused(
                        f"{where}: leads to {self.guard.refused}, which is not allowed (link-local"
                        " and metadata addresses are closed)"
                    ) from None
                if number == ATTEMPTS or is_final(error):
                    raise RegistryFailed(
                        f"{where}: the registry cannot be reached: {reason_of(error)}; check its"
                        " name, the way to it, and --ca-file"
                    ) from None
            await asyncio.sleep(min(self.wait_seconds * 2**number, MOST_WAIT_SECONDS))
        raise AssertionError

    async def get(
        self,
        place: RegistryPlace,
        repository: str,
        url: str,
        where: str,
        headers: Mapping[str, str],
        read: Callable[[ClientResponse], Awaitable[T]],
        good: tuple[int, ...] = (200,),
    ) -> T | None:
        """What is made of the answer at the end of the redirects; None where nothing is."""
        at = url
        for _ in range(MOST_REDIRECTS + 1):
            async with self.request("GET", place, repository, at, where, headers=headers) as answer:
                if answer.status in REDIRECTS:
                    at = self.location(answer, at, where)
                    continue
                if answer.status == 404:
                    return None
                await check_status(answer, where, good)
                return await read(answer)
        raise RegistryRefused(f"{where}: is redirected more than {MOST_REDIRECTS} times")

    def location(self, response: ClientResponse, url: str, where: str) -> str:
        """Where an answer leads to, if it may."""
        target = urljoin(url, response.headers.get("Location", ""))
        parts = urlsplit(target)
        is_safe = parts.scheme == "https" or (
            parts.scheme == "http" and is_loopback(parts.netloc) and url.startswith("http:")
        )
        if not response.headers.get("Location") or not is_safe:
            raise RegistryRefused(
                f"{where}: the registry leads to {parts.scheme}://{parts.netloc}, which is not"
                " allowed; only https is followed"
            )
        return target

    @asynccontextmanager
    async def request(
        self,
        method: str,
        place: RegistryPlace,
        repository: str,
        url: str,
        where: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: BodyFactory | None = None,
        push: bool = False,
    ) -> AsyncGenerator[ClientResponse]:
        """One request, made again with a login when the registry asks for one."""
        scope = f"repository:{repository}:{'pull,push' if push else 'pull'}"
        is_own = urlsplit(url).netloc == urlsplit(place.base).netloc
        key = (place.base, scope)
        for is_last in (False, True):
            sent = dict(headers or {})
            if is_own and key in self.authorizations:
                sent["Authorization"] = self.authorizations[key]
            async with self.session.request(
                method,
                url,
                headers=sent,
                data=body() if body else None,
                allow_redirects=False,
                proxy=proxy_for(url),
            ) as response:
                if response.status != 401 or not is_own or is_last:
                    yield response
                    return
                asked = challenge(response.headers.get("WWW-Authenticate", ""))
            login = await self.logins.find(place.host, repository)
            self.authorizations[key] = await authorization(
                self.session, where, asked, login, scope if push else asked.scope or scope
            )


def named(place: RegistryPlace, repository: str, version: str) -> str:
    """A part of a repository for messages."""
    mark = "@" if ":" in version else ":"
    return f"{place.host}/{repository}{mark}{version}"


def is_final(error: BaseException) -> bool:
    """Whether an error of the network stays the same when it is tried again."""
    return isinstance(error, ClientConnectorCertificateError | ClientSSLError | InvalidURL)


async def check_status(response: ClientResponse, where: str, good: tuple[int, ...]) -> None:
    """Raise what an answer means, unless it is a good one."""
    status = response.status
    if status in good:
        return
    if status in (401, 403):
        raise RegistryRefused(
            f"{where}: the registry does not allow it ({status}): the login is missing, wrong or"
            " has not the right; log in with a container tool, or name its config.json with"
            " --docker-config"
        )
    if status == 404:
        raise MissingImage(f"{where}: the registry has no such repository; create it there first")
    said = await reason(response)
    if status == 429 or status >= 500:
        raise RegistryFailed(f"{where}: the registry failed ({status}{said})")
    raise RegistryRefused(f"{where}: the registry refused it ({status}{said})")


async def reason(response: ClientResponse) -> str:
    """The codes of errors that a registry answers, such as MANIFEST_BLOB_UNKNOWN."""
    content = await response.content.read(MOST_REASON)
    try:
        found = decode_json(content, RegistryAnswer)
    except msgspec.MsgspecError:
        return ""
    codes = [each.code[:60] for each in found.errors if each.code.isascii()]
    return f": {', '.join(codes[:5])}" if codes else ""


def trusted(ca_file: Path | None) -> ssl.SSLContext:
    """Which certificate authorities are believed: the system's, or those of a file."""
    if ca_file is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except FileNotFoundError:
        raise BadReference(f"{ca_file}: there is no such file") from None
    except (ssl.SSLError, OSError):
        raise BadReference(f"{ca_file}: holds no certificates in PEM format") from None
