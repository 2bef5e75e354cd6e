"""One helpful sentence for everything that may go wrong, whatever command it was.

Errors of ours name their object and say what to do. What they cannot know is how the command was
given which cluster to use; that is added here: the address, the kubeconfig, the context, and what
to try. Only click is imported before something went wrong.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

if TYPE_CHECKING:
    from knfleet.kube.endpoint import Connection
    from knfleet.kube.errors import ApiError, KubeError

ORIGINS = "knfleet.cli.origins"
OTHER = "choose another cluster with --context or --kubeconfig"


class ServerOrigin(NamedTuple):
    """How a command came to the address of a cluster."""

    server: str
    kubeconfig: Path | None
    """The file that a flag named."""
    context: str | None


def remember(connection: "Connection", kubeconfig: Path | None, context: str | None) -> None:
    """Keep how a connection was chosen, for as long as the command runs."""
    running = click.get_current_context(silent=True)
    if running is not None:
        origin = ServerOrigin(connection.endpoint.server, kubeconfig, context)
        running.meta.setdefault(ORIGINS, []).append(origin)


def origin_of(error: BaseException) -> ServerOrigin | None:
    """How the command came to the cluster that an error is about: the first, in doubt."""
    from urllib.parse import urlsplit

    running = click.get_current_context(silent=True)
    known: list[ServerOrigin] = [] if running is None else running.meta.get(ORIGINS, [])
    text = str(error)
    named = [each for each in known if urlsplit(each.server).netloc in text]
    return next(iter([*named, *known]), None)


def is_ours(error: BaseException) -> bool:
    """Whether an error has a message for people: ours all do, and a file's name says enough."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(is_ours, group.exceptions))
    if isinstance(error, OSError):
        return error.filename is not None
    return type(error).__module__.startswith("knfleet.") and isinstance(error, Exception)


def sentence(error: BaseException) -> str:
    """What to tell people about an error."""
    if isinstance(error, BaseExceptionGroup):
        return sentence(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or type(error).__name__}"
    tellers = tellers_by_type()
    teller = next((tellers[kind] for kind in type(error).__mro__ if kind in tellers), str)
    return teller(cast("Any", error)) or type(error).__name__


def tellers_by_type() -> dict[type[BaseException], Callable[[Any], str]]:
    """Who words which errors; of all others, the message is good as it is."""
    from knfleet.kube import errors

    return {
        errors.NetworkError: unreachable,
        errors.Unauthorized: not_known,
        errors.Forbidden: not_allowed,
        errors.NotFound: not_there,
        errors.ConfigError: configuration,
    }


def unreachable(error: "KubeError") -> str:
    """There was no answer: where we asked, how we came there, and what to try."""
    origin = origin_of(error)
    if origin is None:
        return str(error)
    _, _, why = str(error).rpartition(": ")
    return f"cannot reach {origin.server}{whence(origin)}: {why}; {remedy(error)}"


def remedy(error: "KubeError") -> str:
    """What helps when a cluster does not answer."""
    from knfleet.kube import errors

    match error:
        case errors.ConnectionRefused():
            return f"nothing listens there: start the cluster, or {OTHER}"
        case errors.DnsFailed():
            return f"check the server's name and your network or VPN, or {OTHER}"
        case errors.TlsFailed():
            return (
                "the certificates do not fit or have expired: get a new kubeconfig for this"
                f" cluster, or {OTHER}"
            )
        case errors.ProxyFailed():
            return "check proxy-url in the kubeconfig, HTTPS_PROXY and NO_PROXY"
        case _:
            return f"check your network, VPN and firewall, or {OTHER}"


def not_known(error: "ApiError") -> str:
    """The server does not take the credentials."""
    origin = origin_of(error)
    if origin is None:
        return f"{error}; the credentials are wrong or have expired: log in again"
    return (
        f"{origin.server} does not accept the credentials{whence(origin)}: they are wrong or have"
        " expired; log in again, or get a new kubeconfig"
    )


def not_allowed(error: "ApiError") -> str:
    """A right is missing: which one, and how to grant it."""
    from knfleet.apply.act.refusals import CANNOT

    found = CANNOT.search(error.message)
    if found is None:
        return str(error)
    origin = origin_of(error)
    user = quoted(error.message, 'User "') or "this user"
    name = f"{found['resource']}.{found['group']}" if found["group"] else found["resource"]
    place = f" in the namespace {found['namespace']}" if found["namespace"] else ""
    where = f" on {origin.server}{whence(origin)}" if origin is not None else ""
    scope = f" -n {found['namespace']}" if found["namespace"] else ""
    role = "role" if found["namespace"] else "clusterrole"
    return (
        f"{user} may not {found['verb']} {name}{place}{where}; an administrator grants it with:"
        f" kubectl create {role} NAME --verb={found['verb']} --resource={name}{scope} &&"
        f" kubectl create {role}binding NAME --{role}=NAME --user={user}{scope}"
    )


def quoted(text: str, begin: str) -> str:
    """What stands between quotes after some words."""
    _, mark, rest = text.partition(begin)
    return rest.partition('"')[0] if mark else ""


def is_unserved(error: "ApiError") -> bool:
    """Whether a server does not know a kind of ours at all."""
    from knfleet.apply.act.refusals import NOT_SERVED

    ours = (
        "open-cluster-management.io",
        "operator.knative.dev",
        "multicluster.x-k8s.io",
        "fleet.knfleet.dev",
    )
    is_about_ours = any(f"{group}/" in error.where for group in ours)
    return is_about_ours and any(text in error.message for text in NOT_SERVED)


def not_there(error: "ApiError") -> str:
    """There is no such object; or the cluster is none that we run on."""
    if not is_unserved(error):
        return str(error)
    origin = origin_of(error)
    where = "this cluster" if origin is None else f"{origin.server}{whence(origin)}"
    parts = error.where.rpartition(" ")[2].split("/")[4:]
    kinds = parts[2] if parts[:1] == ["namespaces"] and len(parts) > 2 else "".join(parts[:1])
    return f"{where} is no hub: it does not know {kinds}; make it one with knfleet init, or {OTHER}"


def configuration(error: "KubeError") -> str:
    """A kubeconfig that is not there, or does not have what was asked for."""
    from knfleet.view.suggestions import nearest

    text = str(error)
    name = quoted_context()
    _, mark, there = text.rpartition("there are: ")
    if name and mark and (like := nearest(name, there.split(", "))):
        return f"{text}; did you mean {like}?"
    if text.endswith("set KUBECONFIG"):
        return f"{text} to the file that your cluster gave you, or name it with --kubeconfig"
    return text


def quoted_context() -> str:
    """The context that the command was given."""
    running = click.get_current_context(silent=True)
    while running is not None:
        params: dict[str, Any] = running.params
        if isinstance(found := params.get("context"), str):
            return found
        running = running.parent
    return ""


def whence(origin: ServerOrigin) -> str:
    """The file and the context that an address comes from, in words."""
    from knfleet.kube.auth import kubeconfig
    from knfleet.kube.errors import KubeError

    paths = [origin.kubeconfig] if origin.kubeconfig else None
    try:
        config = kubeconfig.read(paths)
    except KubeError:
        return ""
    if config.is_empty:
        return " (the cluster that this runs in)" if "KUBERNETES_SERVICE_HOST" in os.environ else ""
    context = origin.context or config.current_context
    return f" (context {context} of {', '.join(config.sources)})"
