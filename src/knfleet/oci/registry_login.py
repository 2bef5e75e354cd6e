"""Credentials for registries, from the files that container tools write when one logs in.

Nothing of them is kept elsewhere, printed or put into an error; helpers are asked by name, as
`docker-credential-NAME get`, and get the registry on their standard input.
"""

import asyncio
import base64
import binascii
import contextlib
import os
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet.kube.untrusted_json import decode_json
from knfleet.oci.errors import BadImage, RegistryRefused
from knfleet.oci.image_reference import API_HOSTS, DOCKER_HUB

HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io")
HELPER = re.compile(r"[A-Za-z0-9._-]+")
HELPER_SECONDS = 30
MOST_BYTES = 1024 * 1024
TOKEN_USER = "<token>"  # noqa: S105  # the name by which helpers mark a token


class RegistryLogin(Struct, frozen=True):
    """A user with a password, or a token that is exchanged for others."""

    user: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:
        return "RegistryLogin(…)"

    @property
    def basic(self) -> str:
        """The header's value for a login by user and password."""
        pair = f"{self.user}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


class AuthEntry(Struct, frozen=True):
    """An entry below `auths`."""

    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class LoginFile(Struct, frozen=True, rename="camel"):
    """The part of a docker config.json that says how to log in."""

    auths: dict[str, AuthEntry] = {}
    creds_store: str = ""
    cred_helpers: dict[str, str] = {}


class HelperAnswer(Struct, frozen=True, rename="pascal"):
    """What a credential helper prints."""

    username: str = ""
    secret: str = ""


class RegistryLogins(Struct):
    """Finds the login of a repository in one file."""

    path: Path | None
    content: LoginFile = msgspec.field(default_factory=LoginFile)

    async def find(self, registry: str, repository: str) -> RegistryLogin | None:
        """The login for a repository of a registry, if the file has one."""
        for key in keys(registry, repository):
            if helper := self.content.cred_helpers.get(key):
                return await self.ask(helper, key)
            if (entry := self.content.auths.get(key)) and (login := self.login(key, entry)):
                return login
        if self.content.creds_store:
            key = HUB_KEYS[0] if registry in (DOCKER_HUB, API_HOSTS[DOCKER_HUB]) else registry
            return await self.ask(self.content.creds_store, key)
        return None

    def login(self, key: str, entry: AuthEntry) -> RegistryLogin | None:
        """The login in an entry; empty entries stand where a helper has it."""
        user, password = entry.username, entry.password
        if entry.auth:
            try:
                text = base64.b64decode(entry.auth, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                raise BadImage(
                    f"{self.path}: auths.{key}.auth is not the base64 of USER:PASSWORD; log in to"
                    " the registry again"
                ) from None
            user, _, password = text.partition(":")
        if not (user or entry.identitytoken):
            return None
        return RegistryLogin(user, password.rstrip("\0"), entry.identitytoken)

    async def ask(self, helper: str, key: str) -> RegistryLogin | None:
        """What a credential helper knows about a registry."""
        name = f"docker-credential-{helper}"
        if not HELPER.fullmatch(helper):
            raise BadImage(f"{self.path}: {helper[:40]!r} is no name of a credential helper")
        try:
            process = await asyncio.create_subprocess_exec(
                name,
                "get",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=MOST_BYTES,
            )
        except OSError as error:
            raise RegistryRefused(
                f"{key}: {name}, which {self.path} names, cannot be started ({error.strerror});"
                " install it, or log in without it"
            ) from None
        try:
            async with asyncio.timeout(HELPER_SECONDS):
                output, _ = await process.communicate(key.encode())
        except TimeoutError:
            raise RegistryRefused(
                f"{key}: {name} did not answer within {HELPER_SECONDS} s"
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            return None
        try:
            answer = decode_json(output[:MOST_BYTES], HelperAnswer)
        except msgspec.MsgspecError:
            raise RegistryRefused(f"{key}: {name} printed something else than a login") from None
        if answer.username == TOKEN_USER:
            return RegistryLogin(identity_token=answer.secret)
        return RegistryLogin(answer.username, answer.secret)


def keys(registry: str, repository: str) -> list[str]:
    """Under which names a login may be kept, the narrowest first."""
    if registry in (DOCKER_HUB, API_HOSTS[DOCKER_HUB]):
        return [*(f"{DOCKER_HUB}/{each}" for each in parents(repository)), *HUB_KEYS]
    paths = [f"{registry}/{each}" for each in parents(repository)]
    return [*paths, registry, f"https://{registry}", f"https://{registry}/v1/"]


def parents(repository: str) -> list[str]:
    """A repository, and the folders that it is in, the longest first."""
    names = repository.split("/")
    return ["/".join(names[:count]) for count in range(len(names), 0, -1)]


def login_file() -> Path | None:
    """The file that tools of this machine's user write, if there is one."""
    folder = os.environ.get("DOCKER_CONFIG")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [
        os.environ.get("REGISTRY_AUTH_FILE"),
        f"{folder}/config.json" if folder else None,
        f"{runtime}/containers/auth.json" if runtime else None,
        str(Path.home() / ".docker" / "config.json"),
    ]
    return next((Path(each) for each in candidates if each and Path(each).is_file()), None)


def registry_logins(path: Path | None) -> RegistryLogins:
    """The logins in a file; those of this machine's user when none is named."""
    path = path or login_file()
    if path is None:
        return RegistryLogins(None)
    content = path.read_bytes()
    try:
        if len(content) > MOST_BYTES:
            raise BadImage(f"{path}: is larger than any file of logins")
        return RegistryLogins(path, decode_json(content, LoginFile))
    except msgspec.MsgspecError as error:
        # The message names fields and types, never values.
        where = "is no JSON" if "malformed" in str(error) else str(error)
        raise BadImage(f"{path}: is no config.json of container tools: {where}") from None
