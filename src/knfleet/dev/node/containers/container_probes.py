"""Probes of real containers: what to ask, how to ask it, and what the answers add up to."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev.node.pods.pod_manifests import rows
from knfleet.dev.node.pods.volumes import UnsupportedVolume


class Probe(Struct, frozen=True):
    """One probe of one container, with all defaults filled in."""

    url: str = ""
    headers: Mapping[str, str] = {}
    address: tuple[str, int] | None = None
    command: tuple[str, ...] = ()
    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    success_threshold: int = 1
    failure_threshold: int = 3


def probe_of(manifest: Object, container: Object, host: str) -> Probe:
    """The probe that a manifest describes, for a container that listens on `host`."""
    timing = timing_of(manifest)
    if get := manifest.get("httpGet"):
        scheme = (get.get("scheme") or "HTTP").lower()
        port = port_number(get["port"], container)
        path = (get.get("path") or "/").lstrip("/")
        headers = {each["name"]: each["value"] for each in rows(get.get("httpHeaders"))}
        return Probe(url=f"{scheme}://{host}:{port}/{path}", headers=headers, **timing)
    if connect := manifest.get("tcpSocket"):
        return Probe(address=(host, port_number(connect["port"], container)), **timing)
    if run := manifest.get("exec"):
        return Probe(command=tuple(run.get("command") or ()), **timing)
    kinds = ", ".join(key for key in manifest if isinstance(manifest[key], dict))
    raise UnsupportedVolume(f'container "{container["name"]}": the dev node has no {kinds} probes')


def timing_of(manifest: Object) -> dict[str, Any]:
    """When a probe is performed, and how many answers in a row count."""
    return {
        "initial_delay_seconds": manifest.get("initialDelaySeconds") or 0,
        "period_seconds": manifest.get("periodSeconds") or 10,
        "timeout_seconds": manifest.get("timeoutSeconds") or 1,
        "success_threshold": manifest.get("successThreshold") or 1,
        "failure_threshold": manifest.get("failureThreshold") or 3,
    }


def port_number(port: int | str, container: Object) -> int:
    """The number of a port that is given by number or by name."""
    if isinstance(port, int):
        return port
    for each in rows(container.get("ports")):
        if each.get("name") == port:
            return each["containerPort"]
    if port.isdigit():
        return int(port)
    raise UnsupportedVolume(f'container "{container["name"]}" has no port named {port}')


class ProbeCounter:
    """Counts answers in a row, and turns when a threshold is met."""

    def __init__(self, probe: Probe, *, passing: bool) -> None:
        self.probe = probe
        self.passing = passing
        self.against = 0

    def count(self, *, success: bool) -> bool:
        """Take one answer; says whether the probe turned from passing to failing or back."""
        if success == self.passing:
            self.against = 0
            return False
        self.against += 1
        threshold = self.probe.success_threshold if success else self.probe.failure_threshold
        if self.against < threshold:
            return False
        self.passing, self.against = success, 0
        return True


class Prober:
    """Performs probes; holds the one HTTP session that all of them share."""

    def __init__(self) -> None:
        self.session = aiohttp.ClientSession(connector=self.connector())

    def connector(self) -> aiohttp.TCPConnector:
        """How containers are reached."""
        return aiohttp.TCPConnector(ssl=False, force_close=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.session.close()

    async def probe(self, probe: Probe, environment: dict[str, str], folder: Path) -> bool:
        """Whether the container answers the probe in time, and well."""
        try:
            async with asyncio.timeout(probe.timeout_seconds):
                if probe.url:
                    return await self.get(probe)
                if probe.address:
                    return await self.connect(*probe.address)
                return await run(probe.command, environment, folder)
        except (TimeoutError, OSError, aiohttp.ClientError):
            return False

    async def get(self, probe: Probe) -> bool:
        """Whether a GET is answered with a code from 200 to 399."""
        headers = {"User-Agent": "kube-probe/knfleet", **probe.headers}
        async with self.session.get(probe.url, headers=headers, allow_redirects=False) as answer:
            return 200 <= answer.status < 400

    async def connect(self, host: str, port: int) -> bool:
        """Whether a process accepts connections."""
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return True


async def run(command: tuple[str, ...], environment: dict[str, str], folder: Path) -> bool:
    """Whether a program ends with exit code 0."""
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )
    try:
        return await child.wait() == 0
    finally:
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
