"""What a hub and a cluster look like after commands, and what the commands refuse."""

from collections.abc import Sequence
from pathlib import Path

from knfleet.api.addon.managedclusteraddon import ADDONS_BETA
from knfleet.api.cluster.clusterset import CLUSTER_SETS
from knfleet.api.cluster.managedcluster import CLUSTERS, SET_LABEL
from knfleet.api.core import CRDS, NAMESPACES, PODS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import (
    AGENT_NAMESPACE,
    CLUSTER_MANAGERS,
    HUB_NAMESPACE,
    KLUSTERLETS,
    OPERATOR_NAMESPACE,
)
from knfleet.api.work.appliedmanifestwork import APPLIED_WORKS
from knfleet.api.work.manifestwork import WORKS
from knfleet.apply.manifest_fields import items
from knfleet.dev.cluster_contents import ContentsEntry, contents
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import BadRequest, ServerError
from testbed.waiting import until
from tests.support import hub_works as works
from tests.support.commands import done, refused, type_in

OURS = (OPERATOR_NAMESPACE, HUB_NAMESPACE, AGENT_NAMESPACE)


async def is_clean(client: Client) -> bool:
    """Whether nothing of a fleet is on a cluster, but the namespaces of its clusters."""
    crds = [each["metadata"]["name"] for each in (await client.list(CRDS)).items]
    namespaces = [each["metadata"]["name"] for each in (await client.list(NAMESPACES)).items]
    return not [each for each in crds if "open-cluster-management" in each] and not [
        each for each in namespaces if each in OURS
    ]


async def check_hub(client: Client) -> None:
    """Pods and ClusterManager are as the document shows them."""
    pods = (await client.list(PODS, OPERATOR_NAMESPACE)).items
    assert [each["metadata"]["name"].rsplit("-", 2)[0] for each in pods] == ["cluster-manager"]
    assert [each["status"]["phase"] for each in pods] == ["Running"]
    assert (await client.list(PODS, HUB_NAMESPACE)).items == []
    manager = await client.get(CLUSTER_MANAGERS, "cluster-manager")
    status = manager["status"]
    said = {each["type"]: each["status"] for each in status["conditions"]}
    said.pop("HubAddOnDegraded", "")
    assert said == {
        "Applied": "True",
        "Available": "True",
        "Progressing": "False",
        "HubRegistrationDegraded": "False",
        "HubPlacementDegraded": "False",
    }
    assert status["observedGeneration"] == manager["metadata"]["generation"]
    assert [each["name"] for each in status["generations"]] == ["cluster-manager"]
    assert status["generations"][0] in [
        {**each, "lastGeneration": 1} for each in status["relatedResources"]
    ]


async def check_webhook(client: Client) -> None:
    """The API server asks the hub's pod about works and add-ons, by its Service and with its CA."""
    oversize = works.work("large", *works.large(10, 51_300))

    async def is_refused() -> bool:
        try:
            await client.create(WORKS, oversize, "default", dry_run=True)
        except BadRequest as error:
            return "exceeds the 512000 limit" in error.message
        return False

    await until(is_refused, "a work that is too large is refused")
    addon = {"apiVersion": ADDONS_BETA.api_version, "kind": ADDONS_BETA.kind}
    made: Object = {**addon, "metadata": {"name": "converted"}, "spec": {}}

    async def is_converted() -> bool:
        try:
            await client.create(ADDONS_BETA, made, "default", dry_run=True)
        except ServerError:
            return False
        return True

    await until(is_converted, "an add-on is converted")

    async def is_reported() -> bool:
        manager = await client.get(CLUSTER_MANAGERS, "cluster-manager")
        found = {each["type"]: each["status"] for each in manager["status"]["conditions"]}
        return found.get("HubAddOnDegraded") == "False"

    await until(is_reported, "the ClusterManager says that add-ons are converted")


async def check_agent(spoke: Client) -> None:
    """Pod and Klusterlet are as the document shows them."""
    pods = (await spoke.list(PODS, AGENT_NAMESPACE)).items
    names = [each["metadata"]["name"].rsplit("-", 2)[0] for each in pods]
    assert names == ["klusterlet-registration-agent"]
    assert [each["status"]["phase"] for each in pods] == ["Running"]

    async def says() -> bool:
        found = await spoke.get(KLUSTERLETS, "klusterlet")
        said = {each["type"]: each for each in items(found, "status", "conditions")}
        return {type_: each["status"] for type_, each in said.items()} == {
            "Applied": "True",
            "Available": "True",
            "RegistrationDesiredDegraded": "False",
            "WorkDesiredDegraded": "False",
            "HubConnectionDegraded": "False",
        }

    await until(says, "the Klusterlet tells how the agent is")


async def check_sets(kubeconfig: Path, client: Client) -> None:
    """A cluster is put into a set that there is, and into no other."""
    wanted = ("clusterset", "set", "mine", "--clusters")
    assert "ManagedClusterSet mine does not exist" in await refused(kubeconfig, *wanted, "cluster1")
    made = {"apiVersion": CLUSTER_SETS.api_version, "kind": CLUSTER_SETS.kind}
    await client.create(CLUSTER_SETS, {**made, "metadata": {"name": "mine"}})
    assert "ManagedCluster nobody does not exist" in await refused(kubeconfig, *wanted, "nobody")
    said = await done(kubeconfig, *wanted, "cluster1")
    assert said == "Cluster cluster1 is set to clusterset mine\n"
    found = await client.get(CLUSTERS, "cluster1")
    assert found["metadata"]["labels"][SET_LABEL] == "mine"


async def with_work(client: Client, name: str) -> None:
    """Make a cluster that nobody hears of, with a work that only its agent could clean up."""
    made: Object = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind}
    spec = {"hubAcceptsClient": True}
    await client.create(CLUSTERS, {**made, "metadata": {"name": name}, "spec": spec})

    async def has_namespace() -> bool:
        found = await client.list(NAMESPACES, fields=f"metadata.name={name}")
        return bool(found.items)

    await until(has_namespace, f"{name} is accepted")
    await client.create(WORKS, works.kept(works.work("left")), name)


async def check_lost(kubeconfig: Path, client: Client) -> None:
    """A cluster that is gone for good is let go only by force."""
    await with_work(client, "gone")
    said = await refused(kubeconfig, "detach", "gone", "--timeout", "2")
    assert "1 manifestworks (left) left in namespace gone" in said
    assert "`knfleet detach gone --force`" in said
    forced = await type_in(kubeconfig, "detach", "gone", "--force")
    assert (forced.code, forced.out) == (0, "gone is detached\n")
    assert "1 works of gone (left): they are given up" in forced.err
    assert "ManagedCluster gone does not exist" in await refused(kubeconfig, "detach", "gone")


def is_left(thing: ContentsEntry) -> bool:
    """Whether something was left that should not be: clusters' namespaces stay."""
    kept = ("cluster1", "gone", "lost")
    noise = ("events", "leases")
    return (
        thing.key.namespace not in kept
        and (thing.resource.plural, thing.key.name) not in [("namespaces", name) for name in kept]
        and thing.resource.plural not in noise
    )


async def check_works(kubeconfig: Path, spoke: Client, leave: Sequence[str]) -> None:
    """A cluster does not leave while works are applied to it, nor under another's name."""
    work: Object = {
        "apiVersion": APPLIED_WORKS.api_version,
        "kind": APPLIED_WORKS.kind,
        "metadata": {"name": "hash-left"},
        "spec": {"hubHash": "x", "manifestWorkName": "left"},
    }
    await spoke.create(APPLIED_WORKS, work)
    assert "1 ManifestWorks are still applied here (left)" in await refused(kubeconfig, *leave)
    await spoke.delete(APPLIED_WORKS, Key("", "hash-left"))
    other = await refused(kubeconfig, "unjoin", "--cluster-name", "other")
    assert "not joined as other" in other


async def is_bare(client: Client, ground: set[ContentsEntry]) -> bool:
    """Whether there is nothing that was not there before, but what is kept."""
    return not [each for each in set(await contents(client)) - ground if is_left(each)]


async def check_doctor(kubeconfig: Path, spoke: Path) -> None:
    """A cluster that is well is found so from both sides, and one that is not there is missed."""
    well = await done(kubeconfig, "doctor", "cluster1", "--spoke-kubeconfig", str(spoke))
    assert [line for line in well.splitlines() if not line.startswith("ok")] == []
    assert "not accepted" not in well
    sick = await type_in(kubeconfig, "doctor", "nobody")
    assert (sick.code, "there is none called nobody" in sick.out) == (1, True)
