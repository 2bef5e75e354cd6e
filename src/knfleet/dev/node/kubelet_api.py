"""The part of the kubelet's own API that people use: the logs of containers."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import aiohttp.web
from msgspec import Struct

from knfleet.api.meta import Key, Object
from knfleet.dev.node.pods.pod_folders import PodFolder
from knfleet.dev.node.pods.pod_manifests import containers_of, init_containers_of
from knfleet.dev.webhook_answers import http_protocol

CHUNK_BYTES = 65536
POLL_SECONDS = 0.2
"""How often a followed log is looked at: files have no event that asyncio could wait for."""


class LogRequest(Struct, frozen=True):
    """Which part of which log is requested."""

    key: Key
    container: str
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None


class UnsupportedRequest(Exception):
    """A request that this kubelet does not serve."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def log_request(path: str, query: Mapping[str, str]) -> LogRequest:
    """What a request for logs wants; raises `UnsupportedRequest` for any other request."""
    parts = path.strip("/").split("/")
    if len(parts) != 4 or parts[0] != "containerLogs":
        raise UnsupportedRequest(
            501, f"the dev node has no /{parts[0]}: pods here are plain processes"
        )

    def number(name: str) -> int | None:
        text = query.get(name, "")
        return int(text) if text.isdigit() else None

    return LogRequest(
        Key(parts[1], parts[2]),
        parts[3],
        query.get("follow") == "true",
        query.get("previous") == "true",
        number("tailLines"),
        number("limitBytes"),
    )


def tail_offset(path: Path, lines: int) -> int:
    """Where the last lines of a file begin."""
    with path.open("rb") as stream:
        position = stream.seek(0, os.SEEK_END)
        wanted, block = lines + 1, b""
        while position > 0 and block.count(b"\n") < wanted:
            step = min(CHUNK_BYTES, position)
            position = stream.seek(position - step)
            block = stream.read(step) + block
            stream.seek(position)
    body = block.removesuffix(b"\n")
    if lines == 0:
        return position + len(block)
    cut = len(body)
    for _ in range(lines):
        cut = body.rfind(b"\n", 0, cut)
        if cut < 0:
            return position
    return position + cut + 1


class LogServer:
    """Answers the API server's requests to the kubelet."""

    def __init__(
        self,
        pods_folder: Path,
        find: Callable[[Key], Object | None],
        *,
        is_real: Callable[[Object], bool],
        is_alive: Callable[[Object, str], bool],
    ) -> None:
        self.pods_folder = pods_folder
        self.find = find
        self.is_real = is_real
        self.is_alive = is_alive
        """Whether a container of a pod may still write to its log."""

    def protocol(self) -> asyncio.Protocol:
        return http_protocol(self.answer)

    async def answer(self, request: aiohttp.web.BaseRequest) -> aiohttp.web.StreamResponse:
        try:
            ask = log_request(request.path, request.query)
            pod = self.pod(ask)
        except UnsupportedRequest as error:
            return aiohttp.web.Response(status=error.status, text=f"{error}\n")
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        left = ask.limit_bytes
        async for chunk in self.lines(ask, pod):
            await response.write(chunk if left is None else chunk[:left])
            if left is not None and (left := left - len(chunk)) <= 0:
                break
        await response.write_eof()
        return response

    def pod(self, ask: LogRequest) -> Object:
        """The pod whose log is wanted."""
        pod = self.find(ask.key)
        if pod is None:
            raise UnsupportedRequest(404, f"the pod {ask.key} does not exist")
        names = [each["name"] for each in (*containers_of(pod), *init_containers_of(pod))]
        if ask.container not in names:
            raise UnsupportedRequest(404, f"the pod {ask.key} has no container {ask.container}")
        return pod

    async def lines(self, ask: LogRequest, pod: Object) -> AsyncIterator[bytes]:
        """The log, piece by piece."""
        if not self.is_real(pod):
            yield f"the pod {ask.key} is simulated by the dev node: nothing runs\n".encode()
            return
        path = PodFolder(self.pods_folder, pod).log(ask.container, previous=ask.previous)
        offset = 0
        if ask.tail_lines is not None and path.exists():
            offset = tail_offset(path, ask.tail_lines)
        while True:
            alive = self.is_alive(pod, ask.container)
            while chunk := piece(path, offset):
                offset += len(chunk)
                yield chunk
            if not ask.follow or ask.previous or not alive:
                return
            await asyncio.sleep(POLL_SECONDS)
            if path.exists() and path.stat().st_size < offset:
                offset = 0


def piece(path: Path, offset: int) -> bytes:
    """A piece of a file that may not exist."""
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            return stream.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""
