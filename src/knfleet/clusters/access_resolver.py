"""From a profile and the provider file to one way of access. Pure.

The first provider of the file whose name the profile has is taken. What the profile adds to the
plugin's arguments and environment goes into a value of its own, never into the provider's.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from knfleet.api.inventory import CONTROL_PLANE_HEALTHY, ClusterProfile, ProfileCluster
from knfleet.clusters.access_errors import (
    ACCESS_PROVIDER_FAILED,
    ACCESS_PROVIDER_NOT_CONFIGURED,
    CLUSTER_PROFILE_NOT_READY,
    CLUSTER_PROFILE_UNAVAILABLE,
    REMOTE_CLIENT_CREATION_FAILED,
    AccessError,
)
from knfleet.clusters.provider_file import Provider
from knfleet.kube.auth.exec_plugin import ClusterInfo, ExecPlugin
from knfleet.kube.auth.kubeconfig_entries import (
    EXEC_EXTENSION,
    ClusterBody,
    ClusterEntry,
    EntryOrigin,
    NamedExtension,
)
from knfleet.kube.client.proxy import proxy_for
from knfleet.kube.client.transport import server_url
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import ConfigError

ADDITIONAL_ARGS = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args"
ADDITIONAL_ENVS = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs"
PROFILE_VARIABLE = "KNFLEET_CLUSTER_PROFILE"
"""Tells plugins of ours for which profile they are asked; others pass it over."""
OWN_VARIABLES = "KNFLEET_"
"""How variables begin that no profile can set."""
PLUGIN_SECONDS = 30.0
"""How long a plugin may run."""
NAMES_SHOWN = 8


class ResolvedAccess(Struct, frozen=True):
    """One way into a cluster; two that are equal are the same connection."""

    endpoint: Endpoint
    plugin: ExecPlugin
    provider: str
    """The name of the provider that was chosen."""


def check_health(profile: ClusterProfile) -> None:
    """Raise unless the cluster manager says that the control plane is healthy."""
    if profile.healthy:
        return
    found = [one for one in profile.status.conditions if one.type == CONTROL_PLANE_HEALTHY]
    if not found:
        state = f"it has no condition {CONTROL_PLANE_HEALTHY}"
    else:
        words = [word for word in (found[0].reason, found[0].message) if word]
        state = f"{CONTROL_PLANE_HEALTHY} is {found[0].status}"
        state += f" ({': '.join(words)})" if words else ""
    raise AccessError(
        CLUSTER_PROFILE_NOT_READY,
        f"ClusterProfile {profile.key} is not ready: {state}; goes on when its cluster manager"
        f" sets {CONTROL_PLANE_HEALTHY} to True",
    )


def resolve(
    profile: ClusterProfile, providers: Sequence[Provider], problem: str = ""
) -> ResolvedAccess:
    """The way into a profile's cluster; raises `AccessError` when there is none.

    The problem is the provider file's, if it has one.
    """
    if not providers:
        why = "the file of --clusterprofile-provider-file lists no provider: add one"
        raise AccessError(
            ACCESS_PROVIDER_NOT_CONFIGURED,
            f"ClusterProfile {profile.key}: cluster provider not configured; {problem or why},"
            " the file is read again",
        )
    provider = chosen(profile, providers)
    if provider.problem:
        raise failed(profile, provider, provider.problem)
    offered = profile.access_provider(provider.name)
    cluster = offered.cluster if offered is not None else None
    endpoint = endpoint_of(profile, provider, cluster)
    return ResolvedAccess(endpoint, plugin_of(profile, provider, cluster, endpoint), provider.name)


def chosen(profile: ClusterProfile, providers: Sequence[Provider]) -> Provider:
    """The first provider of the file that the profile offers."""
    status = profile.status
    offered = {each.name for each in (*status.access_providers, *status.credential_providers)}
    found = next((provider for provider in providers if provider.name in offered), None)
    if found is not None:
        return found
    what = f"it offers {names(offered)}" if offered else "it has no access provider"
    raise AccessError(
        CLUSTER_PROFILE_UNAVAILABLE,
        f"ClusterProfile {profile.key}: no matching cluster accessor found for cluster profile"
        f' "{profile.metadata.name}": {what}, the provider file has'
        f" {names(provider.name for provider in providers)}; goes on when one of the two changes",
    )


def names(given: Iterable[str]) -> str:
    """Names for a message, not more than one wants to read."""
    ordered = sorted(given)
    more = len(ordered) - NAMES_SHOWN
    return ", ".join(ordered[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def endpoint_of(
    profile: ClusterProfile, provider: Provider, cluster: ProfileCluster | None
) -> Endpoint:
    """Where the cluster is, with everything about it checked; https only."""
    given = cluster or ProfileCluster(server="")
    body = ClusterBody(
        server=given.server,
        tls_server_name=given.tls_server_name,
        # What can be verified is: a profile with a CA means it.
        insecure_skip_tls_verify=given.insecure_skip_tls_verify and not given.authorities,
        certificate_authority="" if given.authorities else given.certificate_authority,
        certificate_authority_data=given.authorities,
        proxy_url=given.proxy_url,
        extensions=[NamedExtension(one.name, one.extension) for one in given.extensions],
    )
    entry = ClusterEntry(provider.name, EntryOrigin(f"ClusterProfile {profile.key}"), body)
    try:
        endpoint = entry.endpoint()
        if not endpoint.server.startswith("https://"):
            raise entry.error("server", "it is not an https:// URL, so no credential is sent there")
        server_url(endpoint)
        proxy_for(endpoint)
    except ConfigError as error:
        raise AccessError(
            REMOTE_CLIENT_CREATION_FAILED, f"{error}; goes on when the profile changes"
        ) from None
    return endpoint


def plugin_of(
    profile: ClusterProfile,
    provider: Provider,
    cluster: ProfileCluster | None,
    endpoint: Endpoint,
) -> ExecPlugin:
    """The provider's plugin for one profile."""
    given = cluster or ProfileCluster(server="")
    body = provider.exec
    more_args: list[str] = []
    if provider.args_policy == "Append":
        more_args = additional_args(profile, provider, given.extension(ADDITIONAL_ARGS))
    env = {variable.name: variable.value for variable in body.env}
    if provider.env_policy in {"AppendIfNotExists", "Replace"}:
        more = additional_envs(profile, provider, given.extension(ADDITIONAL_ENVS))
        env = {**more, **env} if provider.env_policy == "AppendIfNotExists" else {**env, **more}
    # Last, so that no profile can pass itself off as another.
    env[PROFILE_VARIABLE] = str(profile.key)
    config = given.extension(EXEC_EXTENSION)
    return ExecPlugin(
        command=body.command,
        args=(*body.args, *more_args),
        env=tuple(env.items()),
        api_version=body.api_version,
        cluster=ClusterInfo.of(endpoint, config) if body.provide_cluster_info else None,
        install_hint=body.install_hint,
        timeout_seconds=PLUGIN_SECONDS,
    )


def additional_args(profile: ClusterProfile, provider: Provider, given: Any) -> list[str]:
    """What a profile adds to the arguments."""
    if given is None:
        return []
    try:
        return msgspec.convert(given, list[str])
    except msgspec.ValidationError:
        problem = f"extension {ADDITIONAL_ARGS} is not a list of strings"
        raise failed(profile, provider, problem) from None


def additional_envs(profile: ClusterProfile, provider: Provider, given: Any) -> dict[str, str]:
    """What a profile adds to the environment."""
    if given is None:
        return {}
    try:
        found = msgspec.convert(given, dict[str, str])
    except msgspec.ValidationError:
        found = {"": ""}
    if any(not name or "=" in name for name in found):
        problem = f"extension {ADDITIONAL_ENVS} is not a map from names to strings"
        raise failed(profile, provider, problem)
    # These configure our plugins, and only the operator may set them, whatever the policy.
    return {name: value for name, value in found.items() if not name.startswith(OWN_VARIABLES)}


def failed(profile: ClusterProfile, provider: Provider, problem: str) -> AccessError:
    """What to raise about a plugin's configuration."""
    return AccessError(
        ACCESS_PROVIDER_FAILED,
        f"failed to build config from ClusterProfile {profile.key}: access provider"
        f" {provider.name}: {problem}; goes on when the profile or the provider file changes",
    )
