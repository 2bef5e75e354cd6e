"""Two custom resources of a kind for one cluster: the first installs, the second waits."""

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key
from knfleet.apply import well_known
from knfleet.kube.client.verbs import Client, ClientOptions
from testbed.operators import Hub, Operator


async def test_a_second_one_is_refused_owns_nothing_and_takes_over(
    knative_hub: Hub, small: Operator
) -> None:
    """It is told who is first; it goes without a trace, and has its turn when the first is gone."""
    hub = knative_hub
    await hub.create(SERVINGS, "first", version="1.22", ingress={})
    await hub.ready(SERVINGS, "1.22.0", "first")

    await hub.create(SERVINGS, "second", version="1.23", ingress={})

    said = await hub.says(SERVINGS, "Ready", "knative-serving/first", name="second")
    assert "delete this one, or delete that one" in said
    second = await hub.get(SERVINGS, "second")
    assert "finalizers" not in second["metadata"]
    assert "version" not in second["status"]
    await hub.delete(SERVINGS, "second")
    await hub.gone(SERVINGS, "second")
    found = await hub.client.get(DEPLOYMENTS, "controller", "knative-serving")
    assert found["spec"]["template"]["spec"]["containers"][0]["image"].endswith(":1.22.0")

    await hub.create(SERVINGS, "third", version="1.23", ingress={})
    await hub.says(SERVINGS, "InstallSucceeded", "knative-serving/first", name="third")
    await hub.delete(SERVINGS, "first")

    await hub.ready(SERVINGS, "1.23.0", "third")
    found = await hub.client.get(DEPLOYMENTS, "controller", "knative-serving")
    assert found["metadata"]["ownerReferences"][0]["name"] == "third"


async def test_copies_that_users_made_of_objects_stay(knative_hub: Hub, small: Operator) -> None:
    """Marks and all: neither an upgrade nor a removal deletes them, and an Event names them."""
    hub = knative_hub
    await hub.create(SERVINGS, version="1.22", ingress={})
    await hub.ready(SERVINGS, "1.22.0")
    await copy(hub, "only-1.22", "mine")

    await hub.change(SERVINGS, version="1.23")
    await hub.ready(SERVINGS, "1.23.0")
    await hub.tells("NotRemoved", "ConfigMap knative-serving/mine")
    await copy(hub, "only-1.23", "mine-too")
    await hub.delete(SERVINGS)
    await hub.gone(SERVINGS)

    await hub.tells("NotRemoved", "ConfigMap knative-serving/mine-too")
    for name in ("mine", "mine-too"):
        found = await hub.client.get(CONFIG_MAPS, name, "knative-serving")
        assert well_known.PART_OF not in found["metadata"]["labels"]
        assert "ownerReferences" not in found["metadata"]
    assert not await hub.exists(CONFIG_MAPS, "only-1.23")


async def copy(hub: Hub, name: str, new: str) -> None:
    """Copy a ConfigMap as users do: all that it says, under another name."""
    found = await hub.client.get(CONFIG_MAPS, name, "knative-serving")
    gone = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    meta = {field: value for field, value in found["metadata"].items() if field not in gone}
    async with Client(hub.lent.connection, ClientOptions(manager="kubectl-create")) as user:
        await user.create(CONFIG_MAPS, {**found, "metadata": {**meta, "name": new}})


async def test_those_that_cannot_be_installed_do_not_stop_others(
    knative_hub: Hub, small: Operator
) -> None:
    """One names a cluster, the others are wrong in themselves; each says what is wrong with it."""
    hub = knative_hub
    profile = {"name": "spoke", "namespace": "fleet"}
    await hub.create(SERVINGS, "remote", clusterProfileRef=profile)
    await hub.create(SERVINGS, "bad", version="1.23", ingress={}, registry={"default": "x"})
    said = await hub.says(SERVINGS, "TargetClusterResolved", "disabled", name="remote")
    assert "ClusterProfile fleet/spoke" in said
    assert (await hub.condition(SERVINGS, "Ready", "remote"))["reason"] == "MulticlusterDisabled"
    said = await hub.says(SERVINGS, "InstallSucceeded", "spec.registry.default", name="bad")
    assert said.startswith("Install failed with message: ")
    await hub.tells("InternalError", "spec.registry.default")

    await hub.client.patch(
        SERVINGS, Key("knative-serving", "bad"), {"spec": {"registry": None, "version": "1.9"}}
    )
    await hub.says(SERVINGS, "InstallSucceeded", "are not available to this release", name="bad")
    await hub.change(SERVINGS, "bad", version="1.23")

    await hub.ready(SERVINGS, "1.23.0", "bad")
    await hub.delete(SERVINGS, "bad")
    await hub.gone(SERVINGS, "bad")
    await hub.delete(SERVINGS, "remote")
    await hub.gone(SERVINGS, "remote")
