"""The cluster that a custom resource installs on, for a person who looks once.

The operator keeps a connection to each spoke; here one is made, used and closed. The way is the
same: profile, provider file, plugin, and the check that it is the cluster that was installed on.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from knfleet.api.inventory import PROFILES, ClusterProfile
from knfleet.api.meta import Key, Object
from knfleet.api.schema import DecodeError, decode
from knfleet.clusters.access_errors import (
    CLUSTER_PROFILE_NOT_FOUND,
    CLUSTER_PROFILE_UNAVAILABLE,
    MULTICLUSTER_DISABLED,
    AccessError,
)
from knfleet.clusters.access_resolver import ResolvedAccess, check_health, resolve
from knfleet.clusters.connection_state import RETRY, RETRY_PLUGIN, cluster_name, failure
from knfleet.clusters.preflight import kube_system_uid, server_version
from knfleet.clusters.provider_file import Provider, ProviderFile
from knfleet.hub.profiles.builtin_providers import BuiltInProviders
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError, NotFound
from knfleet.operator.kinds import profile_of
from knfleet.operator.targets.spoke_targets import check_uid
from knfleet.operator.targets.targets import TargetError
from knfleet.view.suggestions import meant

PROVIDER_FILE_VARIABLE = "KNFLEET_CLUSTERPROFILE_PROVIDER_FILE"
"""Names the provider file where no flag does."""
CONTEXT_VARIABLE = "KNFLEET_HUB_CONTEXT"
"""Tells plugins of ours which context of the kubeconfig is the hub."""
ANSWER_SECONDS = 10.0
"""How long a cluster may take to answer the first time."""
REFUSED_AGAIN = "the plugin is run again within 15 s"
WAITS = tuple(f"; {text}" for text in (RETRY, RETRY_PLUGIN, REFUSED_AGAIN))
"""What the operator promises to do next, and nothing does here."""
OPTIONS = ClientOptions(connect_seconds=5.0, attempts=3)


def providers_for(
    path: Path | None, kubeconfig: Path | None = None, context: str | None = None
) -> ProviderFile:
    """The access providers of a file, of the environment's file, else our own plugins.

    Raises `ProviderFileError` when a file is named and of no use. Our own plugins read Secrets of
    the hub that kubeconfig and context lead to.
    """
    named = path or os.environ.get(PROVIDER_FILE_VARIABLE)
    if named:
        providers = ProviderFile(Path(named))
        providers.load()
        return providers
    environment: dict[str, str] = {}
    if kubeconfig is not None:
        environment["KUBECONFIG"] = str(kubeconfig.absolute())
    if context:
        environment[CONTEXT_VARIABLE] = context
    return own_providers(environment)


def own_providers(environment: Mapping[str, str]) -> ProviderFile:
    """Both plugins of ours, under the names that profiles give them."""
    providers = BuiltInProviders(environment)
    (reader,) = providers.providers
    exec_ = replace(reader.exec, args=("-m", "knfleet.plugins.kubeconfig_secretreader"))
    providers.providers = (reader, Provider("kubeconfig-secretreader", exec_))
    return providers


@asynccontextmanager
async def target_of(
    hub: Client,
    manifest: Object,
    providers: ProviderFile | None,
    *,
    even_unhealthy: bool = False,
) -> AsyncGenerator[Client]:
    """A client of the cluster where a custom resource installs; the hub's own for a local one.

    Raises `AccessError` with one of `access.reasons` when there is no way in: the message says
    what was tried and what to do. With `even_unhealthy`, a profile that is not healthy is tried.
    """
    profile = profile_of(manifest)
    if profile is None:
        yield hub
        return
    access = await way_to(hub, profile, providers, even_unhealthy=even_unhealthy)
    connection = Connection(cluster_name(profile), access.endpoint, access.plugin)
    async with Client(connection, OPTIONS) as client:
        await greet(client, manifest, profile, access)
        yield client


async def way_to(
    hub: Client, profile: Key, providers: ProviderFile | None, *, even_unhealthy: bool = False
) -> ResolvedAccess:
    """The way into a profile's cluster."""
    if providers is None:
        raise AccessError(
            MULTICLUSTER_DISABLED,
            f"ClusterProfile {profile}: no access providers; name their file by"
            f" --clusterprofile-provider-file or {PROVIDER_FILE_VARIABLE}",
        )
    try:
        found = decode(await hub.get(PROFILES, profile.name, profile.namespace), ClusterProfile)
    except NotFound:
        raise await no_profile(hub, profile) from None
    except DecodeError as error:
        raise AccessError(CLUSTER_PROFILE_UNAVAILABLE, f"{error}; correct the profile") from error
    if not even_unhealthy:
        check_health(found)
    return resolve(found, providers.providers)


async def no_profile(hub: Client, profile: Key) -> AccessError:
    """What to say about a profile that is not there."""
    try:
        listing = await hub.list(PROFILES, metadata_only=True)
    except NotFound:
        text = "the ClusterProfile API is not installed on the hub; knfleet init installs it"
        return AccessError(CLUSTER_PROFILE_NOT_FOUND, f"ClusterProfile {profile}: {text}")
    except KubeError:
        text = "there is no such profile on the hub"
        return AccessError(CLUSTER_PROFILE_NOT_FOUND, f"ClusterProfile {profile}: {text}")
    names = [str(Key.of(each)) for each in listing.items]
    return AccessError(
        CLUSTER_PROFILE_NOT_FOUND,
        f"ClusterProfile {profile} does not exist on the hub; {meant(str(profile), names)}",
    )


async def greet(client: Client, manifest: Object, profile: Key, access: ResolvedAccess) -> None:
    """Make sure that a cluster answers, and is the one that was installed on."""
    try:
        _, uid = await asyncio.gather(
            server_version(client, ANSWER_SECONDS), kube_system_uid(client, ANSWER_SECONDS)
        )
    except KubeError as error:
        verdict = failure(error, profile, access)
        message = verdict.message
        for wait in WAITS:
            message = message.removesuffix(wait)
        raise AccessError(verdict.reason, message) from error
    try:
        check_uid(manifest, profile, uid)
    except TargetError as error:
        raise AccessError(error.reason, str(error)) from error
