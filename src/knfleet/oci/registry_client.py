"""A client of registries: the OCI distribution protocol, as far as copying images needs it.

Manifests are given out after their digest was checked; blobs go to a function of the caller, which
checks them.
"""

from collections.abc import AsyncIterator, Callable
from urllib.parse import quote, urlsplit

from aiohttp import ClientResponse
from msgspec import Struct

from knfleet.oci.errors import BadImage
from knfleet.oci.image_manifest import INDEXES, MANIFESTS, MOST_BYTES, check_digest, digest_of
from knfleet.oci.image_reference import RegistryPlace
from knfleet.oci.registry_transport import (
    CHUNK,
    BodyFactory,
    RegistryTransport,
    check_status,
    named,
)

ACCEPT = ", ".join((*INDEXES, *MANIFESTS))


class FetchedManifest(Struct, frozen=True):
    """A manifest as a registry has it."""

    content: bytes
    media_type: str
    digest: str


class RegistryClient(RegistryTransport):
    """Manifests and blobs of registries."""

    async def manifest(
        self, place: RegistryPlace, repository: str, version: str
    ) -> FetchedManifest | None:
        """The manifest of a tag or digest; None where there is none."""
        where = named(place, repository, version)
        url = f"{place.base}/v2/{repository}/manifests/{version}"

        async def read(response: ClientResponse) -> FetchedManifest:
            content = bytearray()
            async for chunk in response.content.iter_chunked(CHUNK):
                content += chunk
                if len(content) > MOST_BYTES:
                    raise BadImage(f"{where}: the manifest is larger than {MOST_BYTES >> 20} MiB")
            whole = bytes(content)
            if ":" in version:
                check_digest(where, whole, version)
            return FetchedManifest(whole, response.content_type, digest_of(whole))

        return await self.repeated(
            where, lambda: self.get(place, repository, url, where, {"Accept": ACCEPT}, read)
        )

    async def has_blob(self, place: RegistryPlace, repository: str, digest: str) -> int | None:
        """How large a blob is in a repository; None where it is not there."""
        where = named(place, repository, digest)
        url = f"{place.base}/v2/{repository}/blobs/{digest}"

        async def attempt() -> int | None:
            async with self.request("HEAD", place, repository, url, where) as response:
                if response.status == 404:
                    return None
                await check_status(response, where, (200,))
                return int(response.headers.get("Content-Length", "-1"))

        return await self.repeated(where, attempt)

    async def blob(
        self,
        place: RegistryPlace,
        repository: str,
        digest: str,
        start: Callable[[], int],
        write: Callable[[int, bytes], None],
    ) -> bool:
        """Read a blob into a function of offset and bytes, from where `start` says that it must
        go on, as far as the registry can do that; False where there is no such blob."""
        where = named(place, repository, digest)
        url = f"{place.base}/v2/{repository}/blobs/{digest}"

        async def attempt() -> bool | None:
            begin = start()
            headers = {"Range": f"bytes={begin}-"} if begin else {}

            async def read(response: ClientResponse) -> bool:
                offset = begin if response.status == 206 else 0
                if offset and not range_begins(response, begin):
                    raise BadImage(f"{where}: the registry sends another part than was asked for")
                async for chunk in response.content.iter_chunked(CHUNK):
                    write(offset, chunk)
                    offset += len(chunk)
                write(offset, b"")
                return True

            return await self.get(place, repository, url, where, headers, read, (200, 206))

        return bool(await self.repeated(where, attempt))

    async def mount(
        self, place: RegistryPlace, repository: str, digest: str, origin: str
    ) -> str | None:
        """Begin an upload, of a blob that another repository may have; the address where its
        content is put, or None when the registry took it over from there."""
        where = named(place, repository, digest)
        query = f"?mount={quote(digest)}&from={quote(origin, safe='')}" if origin else ""
        url = f"{place.base}/v2/{repository}/blobs/uploads/{query}"

        async def attempt() -> str | None:
            async with self.request("POST", place, repository, url, where, push=True) as response:
                await check_status(response, where, (201, 202))
                if response.status == 201:
                    return None
                return self.location(response, url, where)

        return await self.repeated(where, attempt)

    async def put_blob(
        self,
        place: RegistryPlace,
        repository: str,
        digest: str,
        size: int,
        body: BodyFactory,
        origin: str = "",
    ) -> bool:
        """Give a registry a blob; whether its bytes had to be sent."""
        where = named(place, repository, digest)

        async def attempt() -> bool:
            address = await self.mount(place, repository, digest, origin)
            if address is None:
                return False
            separator = "&" if urlsplit(address).query else "?"
            headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
            async with self.request(
                "PUT",
                place,
                repository,
                f"{address}{separator}digest={quote(digest)}",
                where,
                headers=headers,
                body=body,
                push=True,
            ) as response:
                await check_status(response, where, (201,))
            return True

        return await self.repeated(where, attempt)

    async def put_manifest(
        self, place: RegistryPlace, repository: str, version: str, content: bytes, media_type: str
    ) -> None:
        """Give a registry a manifest under a tag or its digest."""
        where = named(place, repository, version)
        url = f"{place.base}/v2/{repository}/manifests/{version}"

        async def body() -> AsyncIterator[bytes]:
            yield content

        async def attempt() -> None:
            headers = {"Content-Type": media_type, "Content-Length": str(len(content))}
            async with self.request(
                "PUT", place, repository, url, where, headers=headers, body=body, push=True
            ) as response:
                await check_status(response, where, (201, 202))

        await self.repeated(where, attempt)


def range_begins(response: ClientResponse, begin: int) -> bool:
    """Whether an answer is the part of a blob that was asked for."""
    return response.headers.get("Content-Range", "").startswith(f"bytes {begin}-")
