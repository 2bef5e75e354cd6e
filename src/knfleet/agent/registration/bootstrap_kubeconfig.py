"""Where the bootstrap kubeconfig comes from: a file, or a Secret of the agent's namespace.

Either may change while the agent runs: that is how a cluster is moved to another hub.
"""

import asyncio
import base64
import contextlib
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from knfleet.agent.grpc.grpc_config import read_config
from knfleet.agent.registration.identity import CONFIG, Bootstrap, read_bootstrap
from knfleet.api.core import SECRETS
from knfleet.api.meta import Key
from knfleet.api.operator import BOOTSTRAP_SECRET
from knfleet.apply.manifest_fields import part
from knfleet.kube.auth.kubeconfig_entries import EntryOrigin
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import ConfigError
from knfleet.runtime.logs import log

LOOK_SECONDS = 2.0
"""How often a file is looked at."""
READY_SECONDS = 10.0


class BootstrapSource(Protocol):
    """A place with a kubeconfig."""

    async def run(self) -> None:
        """Follow it until cancelled."""
        ...

    async def ready(self) -> None:
        """Return when it has been looked at once, or cannot be."""
        ...

    def read(self) -> Bootstrap:
        """What it says now; raises `ConfigError`."""
        ...

    async def change(self) -> None:
        """Return when it may say something else."""
        ...


class BootstrapFile:
    """A kubeconfig in a file."""

    def __init__(self, path: Path, grpc: Path | None = None) -> None:
        self.path = path
        self.grpc = grpc
        """The configuration of a gRPC client beside it."""

    async def run(self) -> None:
        """Files are read when they are needed."""
        await asyncio.Event().wait()

    async def ready(self) -> None:
        """A file is looked at whenever it is read."""

    def read(self) -> Bootstrap:
        """What the file says now."""
        origin = EntryOrigin(str(self.path), self.path.absolute().parent)
        found = read_bootstrap(content(self.path), origin)
        if self.grpc is None:
            return found
        return replace(found, grpc=read_config(content(self.grpc), str(self.grpc)))

    async def change(self) -> None:
        """Return when it is time to look again."""
        await asyncio.sleep(LOOK_SECONDS)


def content(path: Path) -> bytes:
    """What a file holds; raises `ConfigError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise ConfigError(f"{path} cannot be read: {problem}") from error


class BootstrapSecret:
    """A kubeconfig in a Secret."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.key = Key(namespace, BOOTSTRAP_SECRET)
        fields = f"metadata.name={BOOTSTRAP_SECRET}"
        self.informer = Informer(client, SECRETS, namespace, fields=fields)
        self.informer.on_change(self.secret_changed)
        self.changed = asyncio.Event()

    async def run(self) -> None:
        """Follow the Secret."""
        await self.informer.run()

    async def ready(self) -> None:
        """Return when the Secret was looked for, or after a while."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.informer.synced.wait(), READY_SECONDS)

    def read(self) -> Bootstrap:
        """What the Secret says now."""
        secret = self.informer.get(self.key)
        where = f"Secret {self.key}"
        if secret is None:
            why = self.informer.failing
            raise ConfigError(f"{where}: {why}" if why else f"{where}: there is none")
        text: str = part(secret, "data").get("kubeconfig", "")
        if not text:
            raise ConfigError(f"{where}: it has no key kubeconfig")
        found = read_bootstrap(base64.b64decode(text), EntryOrigin(where))
        config: str = part(secret, "data").get(CONFIG, "")
        if not config:
            return found
        return replace(found, grpc=read_config(base64.b64decode(config), f"{where}, key {CONFIG}"))

    def secret_changed(self, change: StoreChange) -> None:
        self.changed.set()

    async def change(self) -> None:
        """Return when the Secret has changed since the last call, or may have."""
        try:
            async with asyncio.timeout(60):
                await self.changed.wait()
        except TimeoutError:
            return
        self.changed.clear()


async def readable(source: BootstrapSource) -> Bootstrap:
    """What the source says, as soon as it says something that can be used."""
    logged = ""
    await source.ready()
    while True:
        try:
            return source.read()
        except ConfigError as error:
            if str(error) != logged:
                logged = str(error)
                log.warning("no bootstrap kubeconfig yet", error=logged)
        await source.change()


async def changed(source: BootstrapSource, bootstrap: Bootstrap) -> None:
    """Return when the source names another hub, or another way to log in there."""
    while True:
        await source.change()
        try:
            found = source.read()
        except ConfigError:
            continue
        if found != bootstrap:
            return
