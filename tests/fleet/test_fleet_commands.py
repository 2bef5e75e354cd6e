"""init, join, accept, unjoin and clean on a real hub and a real spoke."""

import shlex
from pathlib import Path

import msgspec
import pytest

from knfleet.api.cluster import CLUSTERS
from knfleet.api.core import CRDS, NAMESPACES
from knfleet.api.hub import AGENT_NAMESPACE, HUB_NAMESPACE, OPERATOR_NAMESPACE
from knfleet.api.meta import Key
from knfleet.api.work import APPLIED_WORKS
from knfleet.kube.client import Client
from tests.conftest import Lend
from tests.fleet.commands import IMAGE, done, refused, type_in
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("agent")
OURS = (OPERATOR_NAMESPACE, HUB_NAMESPACE, AGENT_NAMESPACE)


async def is_clean(client: Client) -> bool:
    """Whether nothing of a fleet is on a cluster, but the namespaces of its clusters."""
    crds = [each["metadata"]["name"] for each in (await client.list(CRDS)).items]
    namespaces = [each["metadata"]["name"] for each in (await client.list(NAMESPACES)).items]
    return not [each for each in crds if "open-cluster-management" in each] and not [
        each for each in namespaces if each in OURS
    ]


async def test_a_cluster_joins_and_leaves_as_the_document_says(lend: Lend, small_root: Path):
    hub, spoke = await lend(2)
    flags = ("--image", IMAGE, "--releases", str(small_root), "--timeout", "90")
    told = await done(hub.kubeconfig, "init", "--wait", *flags)
    command = next(line for line in told.splitlines() if "knfleet join" in line)
    assert "--hub-token" in command
    assert command.strip().endswith(command.split("--hub-ca-hash ")[1])

    async with Client(hub.connection) as client, Client(spoke.connection) as spoke_client:
        _, *join = shlex.split(command.replace("<cluster_name>", "cluster1"))
        said = await done(spoke.kubeconfig, *join, "--image", IMAGE)
        assert "knfleet accept --clusters cluster1" in said
        accepted = await done(
            hub.kubeconfig, "accept", "--clusters", "cluster1", "--wait", "--timeout", "60"
        )
        assert "approved" in accepted
        assert "set hubAcceptsClient to true for managed cluster cluster1" in accepted

        shown = (await done(hub.kubeconfig, "get", "clusters")).splitlines()
        heading = "NAME HUB ACCEPTED MANAGED CLUSTER URLS JOINED AVAILABLE AGE"
        assert " ".join(shown[0].split()) == heading
        server = spoke.connection.endpoint.server
        assert shown[1].split()[:5] == ["cluster1", "true", server, "True", "True"]
        listed = msgspec.json.decode(await done(hub.kubeconfig, "get", "clusters", "-o", "json"))
        assert [each["metadata"]["name"] for each in listed["items"]] == ["cluster1"]

        well = await done(
            hub.kubeconfig, "doctor", "cluster1", "--spoke-kubeconfig", str(spoke.kubeconfig)
        )
        assert [line for line in well.splitlines() if not line.startswith("ok")] == []
        assert "not accepted" not in well
        sick = await type_in(hub.kubeconfig, "doctor", "nobody")
        assert (sick.code, "there is none called nobody" in sick.out) == (1, True)

        assert "clusters are attached: cluster1" in await refused(hub.kubeconfig, "clean")
        work = {
            "apiVersion": APPLIED_WORKS.api_version,
            "kind": APPLIED_WORKS.kind,
            "metadata": {"name": "left"},
            "spec": {"hubHash": "x", "manifestWorkName": "left"},
        }
        await spoke_client.create(APPLIED_WORKS, work)
        leave = ("unjoin", "--cluster-name", "cluster1")
        assert "1 ManifestWorks are still applied" in await refused(spoke.kubeconfig, *leave)
        await spoke_client.delete(APPLIED_WORKS, Key("", "left"))
        assert "not joined as other" in await refused(
            spoke.kubeconfig, "unjoin", "--cluster-name", "other"
        )

        assert "cluster1 has left" in await done(spoke.kubeconfig, *leave)
        await until(lambda: is_clean(spoke_client), "nothing is left on the spoke")
        await client.delete(CLUSTERS, Key("", "cluster1"))

        async def is_gone() -> bool:
            return not (await client.list(CLUSTERS)).items

        await until(is_gone, "the ManagedCluster is gone")
    async with Client(hub.connection) as client:
        assert "removed" in await done(hub.kubeconfig, "clean")
        await until(lambda: is_clean(client), "nothing is left on the hub")


async def test_a_hub_that_is_named_wrongly_is_refused_with_what_to_do(lend: Lend, tmp_path: Path):
    hub, spoke = await lend(2)
    assert "is not a hub" in await refused(hub.kubeconfig, "get", "token")
    await done(hub.kubeconfig, "init", "--image", IMAGE)
    told = msgspec.json.decode(await done(hub.kubeconfig, "get", "token", "-o", "json"))
    right = {
        "--hub-token": told["hub-token"],
        "--hub-apiserver": told["hub-apiserver"],
        "--cluster-name": "c1",
        "--hub-ca-hash": told["hub-ca-hash"],
    }
    other_ca = tmp_path / "other.crt"
    assert spoke.connection.endpoint.ca is not None
    other_ca.write_bytes(spoke.connection.endpoint.ca)
    cases = [
        ({"--hub-token": "wrong"}, "wrong or has expired; get a new one by `knfleet get token`"),
        ({"--hub-token": "with space"}, "characters that no token has"),
        ({"--hub-apiserver": "http://x"}, "not an https:// URL"),
        ({"--hub-apiserver": "https://127.0.0.1:9"}, "cannot be reached"),
        ({"--hub-ca-hash": "sha256:00"}, "is not that of --hub-ca-hash"),
        ({"--ca-file": str(other_ca)}, "the CA is not the hub's"),
        ({"--cluster-name": "Cluster1"}, "a-z, 0-9 and -"),
        ({"--cluster-name": "c" * 64}, "at most 63"),
        ({"--cluster-name": "kube-system"}, "system namespace"),
        ({"--registration-auth": "grpc"}, "not supported yet"),
        ({"--registration-auth": "awsirsa"}, "not supported yet"),
        ({"--mode": "hosted"}, "go together"),
        ({"--resource-limits": "cpu"}, "--resource-qos-class ResourceRequirement"),
    ]
    for change, words in cases:
        flags = [part for pair in (right | change).items() for part in pair]
        assert words in await refused(spoke.kubeconfig, "join", *flags, "--image", IMAGE), change

    flags = [part for pair in right.items() for part in pair]
    printed = await done(spoke.kubeconfig, "join", *flags, "--dry-run")
    assert "klusterlet-registration-agent" in printed
    assert told["hub-token"] not in printed
    async with Client(spoke.connection) as client:
        assert await is_clean(client)


async def test_a_bootstrap_token_joins_a_cluster_too(lend: Lend, small_root: Path):
    """The hub as a cluster of its own, at the address that it publishes."""
    (hub,) = await lend(1)
    flags = ("--image", IMAGE, "--releases", str(small_root), "--timeout", "90")
    printed = await done(
        hub.kubeconfig, "init", "--wait", "--use-bootstrap-token", "-o", "json", *flags
    )
    told = msgspec.json.decode(printed)
    assert told["hub-token"].startswith("ocmhub.")
    again = msgspec.json.decode(
        await done(hub.kubeconfig, "get", "token", "--use-bootstrap-token", "-o", "json")
    )
    assert again["hub-token"] == told["hub-token"]

    await done(
        hub.kubeconfig,
        *("join", "--hub-token", told["hub-token"], "--hub-apiserver", told["hub-apiserver"]),
        *("--cluster-name", "local-cluster", "--force-internal-endpoint-lookup", "--wait"),
        *("--image", IMAGE, "--resource-qos-class", "BestEffort", "--timeout", "60"),
    )
    accepted = await done(
        hub.kubeconfig, "accept", "--clusters", "local-cluster", "--wait", "--timeout", "60"
    )

    assert "local-cluster is available" in accepted
