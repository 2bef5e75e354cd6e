"""Where the agent keeps who it is: a Secret of its own namespace, and a folder for others.

The Secret is the truth. The folder is a copy of it for programs that read files, and the only place
when the agent has no cluster to keep a Secret in.
"""

import base64
import contextlib
import os
from pathlib import Path

from knfleet.agent.registration.identity import FILES, HubCredentials
from knfleet.api.core import NAMESPACES, SECRETS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import HUB_SECRET
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import AlreadyExists, NotFound
from knfleet.runtime.logs import log

MANAGER = "knfleet-agent"


class CredentialStore:
    """Reads and writes what the agent keeps."""

    def __init__(self, client: Client, namespace: str, folder: Path | None) -> None:
        self.client = client
        self.key = Key(namespace, HUB_SECRET)
        self.folder = folder

    async def load(self) -> HubCredentials:
        """What was kept; nothing at first."""
        try:
            secret = await self.client.get(SECRETS, self.key.name, self.key.namespace)
        except NotFound:
            return read_folder(self.folder) if self.folder else HubCredentials()
        return credentials_in(secret)

    async def save(self, credentials: HubCredentials) -> None:
        """Keep something, in both places."""
        secret = secret_of(credentials, self.key)
        try:
            await self.client.apply(SECRETS, secret, manager=MANAGER)
        except NotFound:
            await self.make_namespace()
            await self.client.apply(SECRETS, secret, manager=MANAGER)
        self.mirror(credentials)

    async def make_namespace(self) -> None:
        """Make the agent's namespace, for an agent that was not installed."""
        meta = {"name": self.key.namespace}
        with contextlib.suppress(AlreadyExists):
            await self.client.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
            )

    def mirror(self, credentials: HubCredentials) -> None:
        """Make the folder say the same as the Secret."""
        if self.folder is None:
            return
        try:
            write_folder(self.folder, credentials)
        except OSError as error:
            log.error("hub kubeconfig folder not written", error=str(error))


def secret_of(credentials: HubCredentials, key: Key) -> Object:
    """The Secret that keeps something."""
    data = {name: base64.b64encode(content).decode() for name, content in credentials.files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "type": "Opaque",
        "data": data,
    }


def credentials_in(secret: Object) -> HubCredentials:
    """What a Secret keeps."""
    data: dict[str, str] = secret.get("data") or {}
    return HubCredentials.of(
        {name: base64.b64decode(text) for name, text in data.items() if name in FILES}
    )


def read_folder(folder: Path) -> HubCredentials:
    """What a folder keeps."""
    found: dict[str, bytes] = {}
    for name in FILES:
        with contextlib.suppress(OSError):
            found[name] = (folder / name).read_bytes()
    return HubCredentials.of(found)


def write_folder(folder: Path, credentials: HubCredentials) -> None:
    """Make the files say something, for the owner alone; the kubeconfig comes last."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = credentials.files
    for name in sorted(FILES, key=lambda name: name == "kubeconfig"):
        path, content = folder / name, wanted.get(name)
        if content is None:
            path.unlink(missing_ok=True)
        elif not path.exists() or path.read_bytes() != content:
            draft = folder / f".{name}"
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
                f.write(content)
            draft.replace(path)
