"""The way of a person to the cluster of a custom resource."""

from pathlib import Path

import pytest

from knfleet.api.core import NAMESPACES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Object
from knfleet.clusters import access_errors
from knfleet.clusters.access_errors import AccessError
from knfleet.clusters.provider_file import ProviderFile, ProviderFileError
from knfleet.kube.client.verbs import Client
from knfleet.operator.kinds import TARGET_UID
from knfleet.plugins import hub_api as plugins
from knfleet.view.target_access import (
    CONTEXT_VARIABLE,
    PROVIDER_FILE_VARIABLE,
    providers_for,
    target_of,
)
from testbed.fakes.fleet import Fleet


def serving(profile: str = "", **annotations: str) -> Object:
    """A custom resource, for the hub or for a spoke."""
    reference = {"clusterProfileRef": {"namespace": "fleet", "name": profile}} if profile else {}
    return {
        "apiVersion": SERVINGS.api_version,
        "kind": SERVINGS.kind,
        "metadata": {"name": "knative", "namespace": "knative-serving", "annotations": annotations},
        "spec": reference,
    }


def providers(fleet: Fleet) -> ProviderFile:
    """The providers of the fake fleet."""
    return providers_for(fleet.file)


async def why_not(hub: Client, fleet: Fleet, manifest: Object) -> AccessError:
    """Why there is no way to a target."""
    with pytest.raises(AccessError) as caught:
        async with target_of(hub, manifest, providers(fleet)):
            pass
    return caught.value


async def test_a_local_custom_resource_is_on_the_hub_itself(hub: Client) -> None:
    """No other client is made, and no provider is needed."""
    async with target_of(hub, serving(), None) as client:
        assert client is hub


async def test_a_profile_leads_to_its_cluster(hub: Client, fleet: Fleet) -> None:
    """Profile, provider, plugin and token are all used."""
    spoke = fleet.add_spoke("one")
    spoke.faults.tokens = {"sesame-open"}

    async with target_of(hub, serving("one"), providers(fleet)) as client:
        found = await client.list(NAMESPACES)

    assert [each["metadata"]["name"] for each in found.items] == ["kube-system"]
    assert client.cluster == "fleet/one"


async def test_a_wrong_cluster_name_gets_the_nearest_one(hub: Client, fleet: Fleet) -> None:
    """Somebody who mistyped a name is told the right one."""
    fleet.add_spoke("london")
    fleet.add_spoke("paris")

    error = await why_not(hub, fleet, serving("lodon"))

    assert error.reason == access_errors.CLUSTER_PROFILE_NOT_FOUND
    assert str(error) == (
        "ClusterProfile fleet/lodon does not exist on the hub; did you mean fleet/london?"
    )


async def test_a_cluster_that_is_another_one_now_is_not_looked_at(
    hub: Client, fleet: Fleet
) -> None:
    """A plan for the wrong cluster would be worse than none."""
    fleet.add_spoke("one")

    error = await why_not(hub, fleet, serving("one", **{TARGET_UID: "somebody-else"}))

    assert "leads to another cluster" in str(error)


async def test_an_unhealthy_profile_is_tried_only_on_demand(hub: Client, fleet: Fleet) -> None:
    """Whoever looks for the cause of a trouble may want to get in all the same."""
    fleet.add_spoke("one")
    fleet.put_profile("one", conditions=[])

    assert (
        await why_not(hub, fleet, serving("one"))
    ).reason == access_errors.CLUSTER_PROFILE_NOT_READY
    async with target_of(hub, serving("one"), providers(fleet), even_unhealthy=True) as client:
        assert await client.version()


async def test_what_is_refused_is_told_without_promises(hub: Client, fleet: Fleet) -> None:
    """The operator tries again; a command does not, and says nothing of it."""
    fleet.add_spoke("one").faults.tokens = {"another"}

    error = await why_not(hub, fleet, serving("one"))

    assert error.reason == access_errors.REMOTE_CLIENT_CREATION_FAILED
    assert "does not accept the credentials of access provider test" in str(error)
    assert "again" not in str(error)


async def test_without_providers_the_flag_is_named(hub: Client, fleet: Fleet) -> None:
    """What to do about it is in the sentence."""
    fleet.add_spoke("one")

    with pytest.raises(AccessError, match="--clusterprofile-provider-file") as caught:
        async with target_of(hub, serving("one"), None):
            pass

    assert caught.value.reason == access_errors.MULTICLUSTER_DISABLED


def test_the_environment_names_the_provider_file(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A flag wins over it; a file that is not there is told."""
    monkeypatch.setenv(PROVIDER_FILE_VARIABLE, str(fleet.file))

    assert [each.name for each in providers_for(None).providers] == ["test"]
    with pytest.raises(ProviderFileError, match="nowhere"):
        providers_for(tmp_path / "nowhere")


def test_without_a_file_our_own_plugins_read_the_hubs_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are told which hub is meant, for it need not be the current context."""
    monkeypatch.delenv(PROVIDER_FILE_VARIABLE, raising=False)
    found = providers_for(None, Path("/k/config"), "hub").providers

    assert [each.name for each in found] == ["secretreader", "kubeconfig-secretreader"]
    for each in found:
        environment = {variable.name: variable.value for variable in each.exec.env}
        assert environment == {"KUBECONFIG": "/k/config", plugins.CONTEXT_VARIABLE: "hub"}
    assert plugins.CONTEXT_VARIABLE == CONTEXT_VARIABLE
