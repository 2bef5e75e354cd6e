"""Kubeconfig files, read and merged as kubectl does it.

`parse` turns one text into a `Kubeconfig`, `merge` puts several on top of one another (per name the
first wins), and `connect` builds the connection for one of the contexts. Every fault is a
`ConfigError` that names the file, the entry and the field, and says what would be right; values are
never shown, since any of them may be a secret.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from knfleet.api.meta import ClusterName, Object
from knfleet.kube import yaml
from knfleet.kube.auth.kubeconfig_entries import (
    ClusterBody,
    ClusterEntry,
    ContextBody,
    ContextEntry,
    EntryOrigin,
    NamedEntry,
    UserBody,
    UserEntry,
)
from knfleet.kube.auth.kubeconfig_users import credentials_of
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import ConfigError

Body = TypeVar("Body", ClusterBody, UserBody, ContextBody)
Found = TypeVar("Found", bound=NamedEntry)


class Kubeconfig(Struct, frozen=True):
    """What one kubeconfig says, or several together."""

    sources: tuple[str, ...] = ()
    clusters: dict[str, ClusterEntry] = field(default_factory=dict[str, ClusterEntry])
    users: dict[str, UserEntry] = field(default_factory=dict[str, UserEntry])
    contexts: dict[str, ContextEntry] = field(default_factory=dict[str, ContextEntry])
    current_context: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is configured at all."""
        return not (self.clusters or self.users or self.contexts)


def load(
    paths: Sequence[Path] | None = None,
    context: str | None = None,
    cluster: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Connection:
    """The connection for a context, or for the current one, perhaps to another cluster.

    Files that are named must exist; without names, `KUBECONFIG` or `~/.kube/config` counts.
    """
    config = read(paths, environ)
    if config.is_empty:
        looked = listed(str(path) for path in paths or default_paths(environ))
        raise ConfigError(f"no kubeconfig: nothing is configured in {looked}; set KUBECONFIG")
    return connect(config, context, cluster)


def contexts(paths: Sequence[Path] | None = None) -> list[str]:
    return sorted(read(paths).contexts)


def read(
    paths: Sequence[Path] | None = None, environ: Mapping[str, str] = os.environ
) -> Kubeconfig:
    """All files together; of those that were not named, the missing ones are skipped."""
    if paths:
        return merge([parse_file(path) for path in paths])
    return merge([parse_file(path) for path in default_paths(environ) if is_there(path)])


def default_paths(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Where kubectl looks."""
    if listed := environ.get("KUBECONFIG", ""):
        return [Path(name) for name in dict.fromkeys(listed.split(os.pathsep)) if name]
    try:
        return [Path.home() / ".kube" / "config"]
    except RuntimeError:  # a user without a home
        return []


def is_there(path: Path) -> bool:
    """Whether there is a file, even one that we may not read."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        # A home that is not ours, as in many pods, holds no kubeconfig of ours either.
        return bool(os.environ.get("KUBECONFIG"))
    return True


def from_text(text: str | bytes, *, source: str, context: str | None = None) -> Connection:
    """The connection that a kubeconfig from elsewhere describes, for instance one in a Secret.

    The author of it must not make us run programs or read files here, so it may name neither.
    """
    return connect(parse(text, EntryOrigin(source)), context)


def merge(configs: Iterable[Kubeconfig]) -> Kubeconfig:
    """Several kubeconfigs as one: for every name, and for the current context, the first wins."""
    merged = Kubeconfig()
    for config in configs:
        merged = Kubeconfig(
            sources=merged.sources + config.sources,
            clusters=config.clusters | merged.clusters,
            users=config.users | merged.users,
            contexts=config.contexts | merged.contexts,
            current_context=merged.current_context or config.current_context,
        )
    return merged


def connect(
    config: Kubeconfig, context: str | None = None, cluster_name: str | None = None
) -> Connection:
    """The connection for a context, or for the current one, perhaps to another cluster."""
    chosen = choose(config, context or config.current_context, asked=bool(context))
    wanted = cluster_name or chosen.body.cluster
    cluster = pick(config.clusters, "cluster", wanted, chosen)
    named = chosen.body.user
    user = pick(config.users, "user", named, chosen) if named else None
    endpoint = cluster.endpoint()
    if not endpoint.server.startswith("https:"):
        # As client-go does: a server that does not prove who it is gets no credentials.
        user = None
    return Connection(
        cluster=ClusterName(chosen.name),
        endpoint=endpoint,
        credentials=credentials_of(user, cluster, endpoint),
        namespace=chosen.body.namespace or "default",
    )


def choose(config: Kubeconfig, name: str, *, asked: bool) -> ContextEntry:
    if (found := config.contexts.get(name)) is not None:
        return found
    where = ", ".join(config.sources)
    there = ", ".join(sorted(config.contexts)) or "none"
    if not name:
        problem = "no context is chosen, and current-context is not set"
    elif asked:
        problem = f"context {name!r} does not exist"
    else:
        problem = f"current-context is {name!r}, which does not exist"
    raise ConfigError(f"{where}: {problem}; there are: {there}")


def pick(entries: dict[str, Found], kind: str, name: str, context: ContextEntry) -> Found:
    if (found := entries.get(name)) is not None:
        return found
    if not name:
        raise context.error(kind, f"it is missing; there are: {listed(entries)}")
    raise context.error(kind, f"there is no {kind} {name!r}; there are: {listed(entries)}")


def listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def parse_file(path: Path) -> Kubeconfig:
    """What one file says; relative paths in it start from its folder."""
    try:
        text = path.read_bytes()
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise ConfigError(f"kubeconfig {path} cannot be read: {problem}") from error
    return parse(text, EntryOrigin(str(path), path.absolute().parent))


def parse(text: str | bytes, origin: EntryOrigin) -> Kubeconfig:
    """What one text says."""
    try:
        value = yaml.load(text, source=origin.source)
    except yaml.YamlError as error:
        raise ConfigError(f"{error}; correct the file") from None
    if value is None:
        return Kubeconfig(sources=(origin.source,))
    check_kind(value, origin)
    current = value.get("current-context") or ""
    if not isinstance(current, str):
        raise ConfigError(f"{origin.source}: current-context: a string is expected")
    clusters = bodies(value, "cluster", ClusterBody, origin)
    users = bodies(value, "user", UserBody, origin)
    contexts = bodies(value, "context", ContextBody, origin)
    return Kubeconfig(
        sources=(origin.source,),
        clusters={name: ClusterEntry(name, origin, body) for name, body in clusters.items()},
        users={name: UserEntry(name, origin, body) for name, body in users.items()},
        contexts={name: ContextEntry(name, origin, body) for name, body in contexts.items()},
        current_context=current,
    )


def check_kind(value: Any, origin: EntryOrigin) -> None:
    """Refuse what is another kind of file."""
    if not yaml.is_mapping(value):
        raise ConfigError(f"{origin.source}: not a kubeconfig: a mapping is expected")
    kind, version = value.get("kind") or "Config", value.get("apiVersion") or "v1"
    if (kind, version) != ("Config", "v1"):
        raise ConfigError(
            f"{origin.source}: not a kubeconfig: its kind has to be Config and its apiVersion v1"
        )


def bodies(value: Object, kind: str, type_: type[Body], origin: EntryOrigin) -> dict[str, Body]:
    """What one of the lists says, by name."""
    found: dict[str, Body] = {}
    for number, one in enumerate(items(value.get(f"{kind}s"), f"{kind}s", origin)):
        where = f"{origin.source}: {kind}s[{number}]"
        name = one.get("name") if yaml.is_mapping(one) else None
        if not isinstance(name, str):
            raise ConfigError(f"{where}: a mapping with a name is expected")
        if name in found:
            raise ConfigError(f"{where}: {kind} {name!r} is there twice; remove one")
        try:
            found[name] = msgspec.convert(without_nulls(one.get(kind) or {}), type_)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{origin.source}: {kind} {name!r}: {error}") from None
    return found


def items(value: Any, name: str, origin: EntryOrigin) -> list[Any]:
    """A list, which may be missing."""
    if value is None:
        return []
    if not yaml.is_list(value):
        raise ConfigError(f"{origin.source}: {name}: a list is expected")
    return value


def without_nulls(value: Any) -> Any:
    """A value in which null means nothing, as it does to kubectl; extensions are left alone."""
    if yaml.is_mapping(value):
        return {
            name: inner if name == "extension" else without_nulls(inner)
            for name, inner in value.items()
            if inner is not None or name == "extension"
        }
    if yaml.is_list(value):
        return [without_nulls(inner) for inner in value]
    return value
