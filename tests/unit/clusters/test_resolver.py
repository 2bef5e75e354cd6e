"""From a profile and the provider file to one way in."""

from typing import Any

import pytest

from knfleet.api.inventory import ClusterProfile
from knfleet.api.schema import decode
from knfleet.clusters import access_errors
from knfleet.clusters.access_errors import AccessError
from knfleet.clusters.access_resolver import (
    ADDITIONAL_ARGS,
    ADDITIONAL_ENVS,
    ResolvedAccess,
    check_health,
    resolve,
)
from knfleet.clusters.provider_file import Provider
from knfleet.kube.auth.kubeconfig_entries import EXEC_EXTENSION, ExecBody, ExecEnvVar
from knfleet.plugins import execcredential, permission
from testbed.fakes.certificates import Authority
from testbed.fakes.fleet import V1, profile

SERVER = "https://spoke.example:6443"
CA = Authority().pem
EXEC = ExecBody(
    command="/plugins/reader",
    args=("--quiet",),
    env=(ExecEnvVar("HOME", "/tmp"),),
    api_version=V1,
    provide_cluster_info=True,
)
TEST = Provider("test", EXEC)


def typed(**more: Any) -> ClusterProfile:
    """A profile with one provider."""
    server = more.pop("server", SERVER)
    return decode(profile("spoke1", server, more.pop("ca", CA), **more), ClusterProfile)


def refused(found: ClusterProfile, *providers: Provider) -> AccessError:
    """Why there is no way in."""
    with pytest.raises(AccessError) as caught:
        resolve(found, providers)
    assert "fleet/spoke1" in str(caught.value)
    return caught.value


def extended(**extensions: Any) -> ClusterProfile:
    """A profile that says something to plugins; the names are short ones."""
    names = {"args": ADDITIONAL_ARGS, "envs": ADDITIONAL_ENVS, "exec": EXEC_EXTENSION}
    given = [{"name": names[name], "extension": value} for name, value in extensions.items()]
    return typed(extensions=given)


def test_a_profile_gives_endpoint_and_plugin():
    """The plugin learns of the cluster what the profile says to it."""
    access = resolve(extended(exec={"clusterName": "spoke1"}), [TEST])

    assert access.provider == "test"
    assert access.endpoint.server == SERVER
    assert access.endpoint.ca is not None
    assert access.plugin.command == "/plugins/reader"
    assert access.plugin.cluster is not None
    assert access.plugin.cluster.config == {"clusterName": "spoke1"}


def test_a_plugin_that_is_not_to_know_the_cluster_does_not():
    """Only with provideClusterInfo."""
    provider = Provider("test", ExecBody(command="x", api_version=V1))

    assert resolve(typed(), [provider]).plugin.cluster is None


def test_all_fields_of_a_cluster_are_honoured():
    """Those too that the Knative Operator ignores."""
    more = {"tls-server-name": "spoke.internal", "proxy-url": "http://proxy.example:3128"}
    endpoint = resolve(typed(**more), [TEST]).endpoint

    assert endpoint.tls_server_name == "spoke.internal"
    assert endpoint.proxy_url == "http://proxy.example:3128"
    assert endpoint.insecure is False
    assert resolve(typed(ca=b"", **{"insecure-skip-tls-verify": True}), [TEST]).endpoint.insecure


def test_a_ca_is_used_even_where_it_need_not_be():
    """A profile that gives an authority means it."""
    endpoint = resolve(typed(**{"insecure-skip-tls-verify": True}), [TEST]).endpoint

    assert endpoint.ca is not None
    assert not endpoint.insecure


def test_the_order_of_the_file_decides():
    """The first provider of the file that the profile has, in either list; the newer list wins."""
    manifest = profile("spoke1", SERVER, CA, provider="second")
    older = [
        {"name": "second", "cluster": {"server": "https://old.example"}},
        {"name": "first", "cluster": {"server": "https://first.example"}},
    ]
    manifest["status"]["credentialProviders"] = older
    found = decode(manifest, ClusterProfile)
    first, second = Provider("first", EXEC), Provider("second", EXEC)

    assert resolve(found, [TEST, first, second]).endpoint.server == "https://first.example"
    assert resolve(found, [second, first]).endpoint.server == SERVER


def test_an_empty_file_is_told():
    """The reason that the Knative Operator never gives."""
    error = refused(typed())

    assert error.reason == access_errors.ACCESS_PROVIDER_NOT_CONFIGURED
    assert "cluster provider not configured" in str(error)


def test_a_profile_without_a_provider_that_we_know_is_unavailable():
    """Both sides are named, even when there are two hundred."""
    many = [Provider(f"provider{number:03}", EXEC) for number in range(200)]
    error = refused(typed(), *many)

    assert error.reason == access_errors.CLUSTER_PROFILE_UNAVAILABLE
    assert 'no matching cluster accessor found for cluster profile "spoke1"' in str(error)
    assert "it offers test" in str(error)
    assert "provider007 and 192 more" in str(error)


def test_a_profile_without_providers_is_unavailable():
    """It is told apart from one with the wrong ones."""
    manifest = profile("spoke1", SERVER)
    del manifest["status"]["accessProviders"]
    error = refused(decode(manifest, ClusterProfile), TEST)

    assert error.reason == access_errors.CLUSTER_PROFILE_UNAVAILABLE
    assert "it has no access provider" in str(error)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"server": "http://spoke.example"}, "server: http:// is accepted for this machine only"),
        ({"server": "http://127.0.0.1:8080"}, "server: it is not an https:// URL, so no credent"),
        ({"server": "spoke.example:6443"}, "server: it is not an https:// URL"),
        ({"server": ""}, "server: it is missing"),
        ({"server": "https://"}, "server: it is not an https:// URL"),
        ({"server": "https://me:secret@spoke.example"}, "server: it holds a user name"),
        ({"server": "https://spoke.example:99999"}, "server: it is not an https:// URL"),
        ({"ca": b"", "certificate-authority-data": "%%%"}, "the value is not base64"),
        ({"ca": b"not a certificate"}, "there is no PEM certificate"),
        ({"ca": b"", "certificate-authority": "/etc/ca.crt"}, "put its content into"),
        ({"proxy-url": "socks5://proxy.example"}, "proxy-url: it is not an http:// or https://"),
    ],
)
def test_a_bad_endpoint_is_refused_before_any_plugin_runs(fields: dict[str, Any], said: str):
    """The message names the profile and the field, and quotes no password."""
    error = refused(typed(**fields), TEST)

    assert error.reason == access_errors.REMOTE_CLIENT_CREATION_FAILED
    assert said in str(error)
    assert "secret" not in str(error)


def test_a_provider_without_a_cluster_has_no_server():
    """As an API server lets it through."""
    manifest = profile("spoke1", SERVER)
    manifest["status"]["accessProviders"] = [{"name": "test"}]
    error = refused(decode(manifest, ClusterProfile), TEST)

    assert error.reason == access_errors.REMOTE_CLIENT_CREATION_FAILED
    assert "server: it is missing" in str(error)


def test_a_bad_entry_of_the_file_is_told_to_whoever_needs_it():
    """With what to correct."""
    error = refused(typed(), Provider("test", problem="providers.json: provider 1 (test): bad"))

    assert error.reason == access_errors.ACCESS_PROVIDER_FAILED
    assert "failed to build config from ClusterProfile fleet/spoke1" in str(error)
    assert "providers.json: provider 1 (test): bad" in str(error)


def test_profiles_add_arguments_only_where_the_policy_lets_them():
    """And only for their own cluster: the provider stays as it was."""
    found = extended(args=["--tenant", "one"])
    appending = Provider("test", EXEC, args_policy="Append")

    assert resolve(found, [TEST]).plugin.args == ("--quiet",)
    assert resolve(found, [appending]).plugin.args == ("--quiet", "--tenant", "one")
    assert resolve(found, [appending]).plugin.args == ("--quiet", "--tenant", "one")
    assert resolve(typed(), [appending]).plugin.args == ("--quiet",)
    assert appending.exec.args == ("--quiet",)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", {"HOME": "/tmp"}),
        ("Ignore", {"HOME": "/tmp"}),
        ("AppendIfNotExists", {"HOME": "/tmp", "TENANT": "one"}),
        ("Replace", {"HOME": "/root", "TENANT": "one"}),
    ],
)
def test_profiles_add_variables_only_where_the_policy_lets_them(
    policy: Any, expected: dict[str, str]
):
    """The file wins, or the profile does."""
    found = extended(envs={"HOME": "/root", "TENANT": "one"})

    assert env_of(resolve(found, [Provider("test", EXEC, env_policy=policy)])) == expected
    assert env_of(resolve(found, [TEST])) == {"HOME": "/tmp"}


def test_no_profile_passes_itself_off_as_another():
    """Whatever it adds to the environment."""
    found = extended(envs={execcredential.PROFILE: "fleet/another"})

    assert env_of(resolve(found, [Provider("test", EXEC, env_policy="Replace")])) == {
        "HOME": "/tmp"
    }


@pytest.mark.parametrize("policy", ["AppendIfNotExists", "Replace"])
def test_no_profile_permits_itself_secrets_of_other_namespaces(policy: Any):
    """That is for the provider file to say, or for the environment of the process."""
    found = extended(envs={permission.VARIABLE: "*", "TENANT": "one"})

    access = resolve(found, [Provider("test", EXEC, env_policy=policy)])

    assert env_of(access) == {"HOME": "/tmp", "TENANT": "one"}


def env_of(access: ResolvedAccess) -> dict[str, str]:
    """The variables of a plugin, without the one that is always there."""
    env = dict(access.plugin.env)
    assert env.pop(execcredential.PROFILE) == "fleet/spoke1"
    return env


@pytest.mark.parametrize(
    "extensions",
    [
        {"args": {"a": "b"}},
        {"args": "--all"},
        {"args": [1]},
        {"envs": ["A"]},
        {"envs": {"A": 1}},
        {"envs": {"A=B": "c"}},
        {"envs": {"": "c"}},
    ],
)
def test_additions_that_are_none_are_refused(extensions: dict[str, Any]):
    """Only where they would have been used."""
    strict = Provider("test", EXEC, args_policy="Append", env_policy="Replace")
    error = refused(extended(**extensions), strict)

    assert error.reason == access_errors.ACCESS_PROVIDER_FAILED
    assert "clusterprofiles.multicluster.x-k8s.io/exec/additional-" in str(error)
    assert resolve(extended(**extensions), [TEST]).plugin.args == ("--quiet",)


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([], "it has no condition ControlPlaneHealthy"),
        ([{"type": "Joined", "status": "True"}], "it has no condition ControlPlaneHealthy"),
        (
            [
                {
                    "type": "ControlPlaneHealthy",
                    "status": "False",
                    "reason": "Gone",
                    "message": "no lease",
                }
            ],
            "ControlPlaneHealthy is False (Gone: no lease)",
        ),
        (
            [{"type": "ControlPlaneHealthy", "status": "Unknown"}],
            "ControlPlaneHealthy is Unknown;",
        ),
    ],
)
def test_a_profile_is_ready_only_when_its_manager_says_so(
    conditions: list[dict[str, Any]], said: str
):
    """What the manager says is handed on."""
    with pytest.raises(AccessError) as caught:
        check_health(typed(conditions=conditions))

    assert caught.value.reason == access_errors.CLUSTER_PROFILE_NOT_READY
    assert "ClusterProfile fleet/spoke1 is not ready" in str(caught.value)
    assert said in str(caught.value)


def test_equal_profiles_are_the_same_way_in():
    """A heartbeat changes nothing that counts."""
    later = [{"type": "ControlPlaneHealthy", "status": "True", "message": "heard at noon"}]

    assert resolve(typed(), [TEST]) == resolve(typed(conditions=later), [TEST])
    assert resolve(typed(), [TEST]) != resolve(typed(server="https://other.example"), [TEST])
