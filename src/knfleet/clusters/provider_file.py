"""The provider file: which credential plugins this process may run, by name.

The file is JSON, as the Cluster Inventory API defines it. A file that makes no sense is refused as
a whole; an entry that makes no sense is kept with its problem, so that the others go on working and
a caller that needs it gets the problem. The file is looked at again every second: a ConfigMap that
is mounted is replaced by way of a symbolic link, and its new content counts without a restart. That
holds also for a file that is missing or makes no sense when the process starts.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from knfleet.api.schema import in_words, without_nulls
from knfleet.kube import yaml
from knfleet.kube.auth.exec_plugin import API_VERSIONS, unsupported
from knfleet.kube.auth.exec_process import ProcessRunner, run
from knfleet.kube.auth.kubeconfig_entries import ExecBody
from knfleet.kube.untrusted_json import decode_json
from knfleet.runtime.logs import log

LOOK_SECONDS = 1.0
NOT_READ = object()
FILE_LIMIT = 1024 * 1024

ArgsPolicy = Literal["", "Ignore", "Append"]
EnvPolicy = Literal["", "Ignore", "AppendIfNotExists", "Replace"]


class ProviderFileError(Exception):
    """The provider file cannot be used; the message names the file, the place and what to do."""


class ProviderDocument(Struct):
    """The file as it is written."""

    providers: list[Any] | None = None


class ProviderEntry(Struct, frozen=True, rename="camel"):
    """One provider as it is written."""

    name: str = ""
    exec_config: ExecBody | None = None
    profile_sourced_cli_args_policy: ArgsPolicy = msgspec.field(
        name="profileSourcedCLIArgsPolicy", default=""
    )
    profile_sourced_env_vars_policy: EnvPolicy = ""


class Provider(Struct, frozen=True):
    """One entry of the file: a plugin, and what of it a profile may add to."""

    name: str
    exec: ExecBody = ExecBody()
    args_policy: ArgsPolicy = ""
    env_policy: EnvPolicy = ""
    problem: str = ""
    """Why the entry cannot be used; empty when it can."""

    def __repr__(self) -> str:
        # Arguments and variables may hold secrets.
        return f"Provider({self.name!r}, {self.exec.command!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name), ("command", self.exec.command)]


def parse(content: bytes, source: str) -> tuple[Provider, ...]:
    """The providers of a file, in its order; raises `ProviderFileError` when it is none."""
    try:
        entries = decode_json(content, ProviderDocument).providers
    except msgspec.ValidationError:
        problem = 'write {"providers": [...]}, with a list of providers in it'
        raise ProviderFileError(f"{source}: not a provider file; {problem}") from None
    except msgspec.DecodeError as error:
        raise ProviderFileError(f"{source}: not JSON: {error}; correct the file") from None
    providers: list[Provider] = []
    known: set[str] = set()
    for number, entry in enumerate(entries or [], 1):
        provider = parse_entry(entry, f"{source}: provider {number}")
        if provider.name in known:
            raise ProviderFileError(
                f"{source}: provider {number}: the name {provider.name!r} is there already;"
                " give each provider a name of its own"
            )
        known.add(provider.name)
        providers.append(provider)
    return tuple(providers)


def parse_entry(entry: object, where: str) -> Provider:
    """One provider, whose problem is reported when it is needed."""
    name = entry.get("name") if yaml.is_mapping(entry) else None
    if not isinstance(name, str) or not name:
        raise ProviderFileError(f"{where}: it has no name; write the name that profiles give it")
    where = f"{where} ({name})"
    try:
        written = msgspec.convert(without_nulls(entry), ProviderEntry)
    except msgspec.ValidationError as error:
        return Provider(name, problem=f"{where}: {in_words(str(error))}")
    if written.exec_config is None:
        return Provider(name, problem=f"{where}: execConfig is missing; name the plugin to run")
    return Provider(
        name,
        written.exec_config,
        written.profile_sourced_cli_args_policy,
        written.profile_sourced_env_vars_policy,
        problem=exec_problem(written.exec_config, where),
    )


def exec_problem(body: ExecBody, where: str) -> str:
    """What is wrong with a plugin's configuration; empty when nothing is."""
    if not body.command:
        return f"{where}: execConfig.command is missing; write the path of the plugin"
    if body.api_version not in API_VERSIONS:
        return f"{where}: execConfig: {unsupported(body.api_version)}"
    if any(not variable.name or "=" in variable.name for variable in body.env):
        return f"{where}: execConfig.env: a variable has no usable name"
    return ""


class ProviderFile:
    """The provider file as it is now; a bad change is logged, and the last good content stays."""

    def __init__(self, path: Path, look_seconds: float = LOOK_SECONDS) -> None:
        self.path = path
        self.look_seconds = look_seconds
        self.run_plugin: ProcessRunner = run
        """How the plugins are run."""
        self.providers: tuple[Provider, ...] = ()
        self.problem = ""
        """What is wrong with the file at the moment; empty when nothing is."""
        self.stamp: object = NOT_READ
        self.handlers: list[Callable[[], None]] = []

    def on_change(self, handler: Callable[[], None]) -> None:
        """Call a function whenever the providers, or what is wrong with the file, are different."""
        self.handlers.append(handler)

    def load(self) -> None:
        """Read the file once; raises `ProviderFileError` when it is of no use."""
        self.stamp = stamp_of(self.path)
        self.providers = parse(read(self.path), str(self.path))

    async def run(self) -> None:
        """Follow the file."""
        while True:
            await asyncio.sleep(self.look_seconds)
            self.reload_if_changed()

    def reload_if_changed(self) -> None:
        """Read the file if it is another one than before, or was of no use."""
        stamp = stamp_of(self.path)
        if stamp == self.stamp and not self.problem:
            return
        self.stamp = stamp
        before = (self.providers, self.problem)
        try:
            self.providers, self.problem = parse(read(self.path), str(self.path)), ""
        except ProviderFileError as error:
            self.problem = str(error)
        if before == (self.providers, self.problem):
            return
        names = [each.name for each in self.providers]
        if self.problem:
            log.error("provider file not used", error=self.problem, last_good=names)
        else:
            log.info("provider file read", providers=names)
        for handler in self.handlers:
            handler()


def stamp_of(path: Path) -> object:
    """What tells two contents of a file apart without reading it; None when there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def read(path: Path) -> bytes:
    """The content of the file."""
    try:
        if path.stat().st_size > FILE_LIMIT:
            raise ProviderFileError(f"{path}: larger than {FILE_LIMIT // 1024} KiB")
        return path.read_bytes()
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise ProviderFileError(
            f"{path} cannot be read: {problem}; correct --clusterprofile-provider-file"
        ) from error
