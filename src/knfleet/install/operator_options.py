"""What can be chosen about an installation, and what is wrong with a choice."""

import posixpath
import re

import msgspec
from msgspec import Struct

from knfleet import __version__
from knfleet.operator.settings import NAMESPACE

IMAGE = f"knfleet:{__version__}"
SEMANTIC_VERSION = re.sub(r"(?<=\d)(a|b|rc)(\d+)$", r"-\1.\2", __version__)
"""The version as Helm and OLM write it: 0.2.0-rc.1 for 0.2.0rc1."""
POLL_INTERVAL = "10s"
MINIMUM_KUBERNETES = "v1.25.0"
"""What the Knative Operator's chart hands on to Knative."""
BUILT_IN = (
    "knfleet",
    "knfleet-kubeconfig-secretreader",
    "knfleet-secretreader",
    "kubeconfig-secretreader-plugin",
    "secretreader-plugin",
)
"""Programs of our own image, which a provider may name without a mounted plugin."""


class InstallError(Exception):
    """A choice that makes no sense; the message says what would."""


class PluginImage(Struct, frozen=True):
    """An image with a credential plugin, mounted as a volume."""

    name: str
    image: str
    mount_path: str


class OperatorInstall(Struct, frozen=True, kw_only=True):
    """What can be chosen."""

    namespace: str = NAMESPACE
    image: str = IMAGE
    local: bool = True
    """Whether Knative may be installed on the hub itself."""
    multicluster: bool = False
    providers: bytes = b""
    """The access provider file, as JSON."""
    plugins: tuple[PluginImage, ...] = ()
    poll_interval: str = POLL_INTERVAL
    minimum_kubernetes: str = MINIMUM_KUBERNETES
    secret_namespaces: tuple[str, ...] = ()
    """Where credentials are beside their ClusterProfiles."""
    check_profile_use: bool = False
    """Whether authors of custom resources need the permission to use their ClusterProfile."""


class PluginCommand(Struct, frozen=True):
    """Which program a provider runs."""

    command: str = ""


class ProviderSummary(Struct, frozen=True):
    """As much of an access provider as an installation depends on."""

    name: str = ""
    exec_config: PluginCommand = msgspec.field(name="execConfig", default=PluginCommand())


class ProviderSummaries(Struct, frozen=True):
    """A file of access providers."""

    providers: tuple[ProviderSummary, ...]


def check(install: OperatorInstall) -> None:
    """Raise `InstallError` about the first thing that makes no sense, as the chart does."""
    if not install.multicluster:
        return
    providers = providers_of(install.providers)
    paths = [mount_path(number, plugin) for number, plugin in enumerate(install.plugins)]
    for provider in providers:
        command = provider.exec_config.command
        if not command or command in BUILT_IN:
            continue
        cleaned = posixpath.normpath(command)
        if not any(cleaned.startswith(f"{path}/") for path in paths):
            raise InstallError(
                f'provider "{provider.name}": command "{cleaned}" is not under any '
                f"plugins[].mountPath [{' '.join(paths)}]; mount the plugin's image there, or name "
                "a plugin of knfleet's own: secretreader-plugin, kubeconfig-secretreader-plugin"
            )


def providers_of(text: bytes) -> tuple[ProviderSummary, ...]:
    """The entries of a provider file."""
    if not text.strip():
        raise InstallError(
            "multi-cluster support is wanted, but there are no access providers; name their file"
        )
    try:
        return msgspec.json.decode(text, type=ProviderSummaries).providers
    except msgspec.DecodeError as error:
        raise InstallError(f"the provider file cannot be used: {error}") from error


def mount_path(number: int, plugin: PluginImage) -> str:
    """Where a plugin is mounted, cleaned."""
    cleaned = posixpath.normpath(plugin.mount_path or ".")
    if not cleaned.startswith("/"):
        raise InstallError(
            f'plugins[{number}].mountPath must be an absolute path, got "{plugin.mount_path}"'
        )
    return cleaned
