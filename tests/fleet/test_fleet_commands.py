"""init, join, accept, unjoin and clean on a real hub and a real spoke."""

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from knfleet.api.cluster.access import ACCESS_SECRET
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.core import CONFIG_MAPS, PODS, SECRETS
from knfleet.api.meta import Key
from knfleet.api.operator import KLUSTERLETS
from knfleet.dev.cluster_contents import contents
from knfleet.kube.client.verbs import Client
from knfleet.workflows.join_token import token_secret
from testbed.clusters import Lend, Lent
from testbed.waiting import until
from tests.support.commands import IMAGE, done, refused
from tests.support.fleet_checks import (
    check_agent,
    check_doctor,
    check_hub,
    check_lost,
    check_sets,
    check_webhook,
    check_works,
    is_bare,
    is_clean,
    with_work,
)

pytestmark = pytest.mark.xdist_group("agent")


async def test_a_cluster_joins_and_leaves_as_the_document_says(lend: Lend, small_root: Path):
    hub, spoke = await lend(2)
    async with Client(hub.connection) as client:
        ground = set(await contents(client))
    flags = ("--image", IMAGE, "--releases", str(small_root), "--timeout", "90")
    told = await done(hub.kubeconfig, "init", "--wait", *flags)
    command = next(line for line in told.splitlines() if "knfleet join" in line)
    assert "--hub-token" in command
    assert command.strip().endswith(command.split("--hub-ca-hash ")[1])

    async with Client(hub.connection) as client, Client(spoke.connection) as spoke_client:
        await check_hub(client)
        await check_webhook(client)
        _, *join = shlex.split(command.replace("<cluster_name>", "cluster1"))
        said = await done(spoke.kubeconfig, *join, "--image", IMAGE)
        assert "knfleet accept --clusters cluster1" in said
        accept = ("accept", "--clusters", "cluster1", "--wait", "--timeout", "60")
        assert "would be approved" in await done(hub.kubeconfig, *accept, "--dry-run")
        accepted = await done(hub.kubeconfig, *accept)
        assert "approved" in accepted
        assert "set hubAcceptsClient to true for managed cluster cluster1" in accepted

        await check_agent(spoke_client)
        shown = (await done(hub.kubeconfig, "get", "clusters")).splitlines()
        heading = "NAME HUB ACCEPTED MANAGED CLUSTER URLS JOINED AVAILABLE AGE"
        assert " ".join(shown[0].split()) == heading
        server = spoke.connection.endpoint.server
        assert shown[1].split()[:5] == ["cluster1", "true", server, "True", "True"]
        listed = msgspec.json.decode(await done(hub.kubeconfig, "get", "clusters", "-o", "json"))
        assert [each["metadata"]["name"] for each in listed["items"]] == ["cluster1"]

        await check_doctor(hub.kubeconfig, spoke.kubeconfig)
        await check_sets(hub.kubeconfig, client)
        assert "clusters are attached: cluster1" in await refused(hub.kubeconfig, "clean")
        assert "it can clean up itself" in await refused(
            hub.kubeconfig, "detach", "cluster1", "--force"
        )
        leave = ("unjoin", "--cluster-name", "cluster1")
        await check_works(spoke.kubeconfig, spoke_client, leave)
        assert "Deployment open-cluster-management-agent/" in await done(
            spoke.kubeconfig, *leave, "--dry-run"
        )
        assert "cluster1 has left" in await done(spoke.kubeconfig, *leave)
        await until(lambda: is_clean(spoke_client), "nothing is left on the spoke")
        await client.delete(CLUSTERS, Key("", "cluster1"))

        async def is_gone() -> bool:
            return not (await client.list(CLUSTERS)).items

        await until(is_gone, "the ManagedCluster is gone")
        await check_lost(hub.kubeconfig, client)
    async with Client(hub.connection) as client:
        await with_work(client, "lost")
        lost = await done(hub.kubeconfig, "clean", "--dry-run")
        assert "ManagedCluster lost" in lost
        assert "ManifestWork lost/left" in lost
        assert "removed" in await done(hub.kubeconfig, "clean")
        await until(lambda: is_clean(client), "nothing is left on the hub")
        await until(lambda: is_bare(client, ground), "nothing of the hub is left anywhere")


@pytest.mark.full
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
        ({"--ca-file": str(other_ca)}, "the CA of --ca-file is not that of --hub-ca-hash"),
        ({"--cluster-name": "Cluster1"}, "a-z, 0-9 and -"),
        ({"--cluster-name": "c" * 64}, "at most 63"),
        ({"--cluster-name": "kube-system"}, "system namespace"),
        ({"--registration-auth": "grpc"}, "needs --grpc-server and --grpc-ca-file"),
        ({"--registration-auth": "awsirsa"}, "needs --hub-cluster-arn and --managed-cluster-arn"),
        ({"--mode": "hosted"}, "go together"),
        ({"--resource-limits": "cpu"}, "--resource-qos-class ResourceRequirement"),
    ]
    past = datetime.now(UTC) - timedelta(hours=1)
    async with Client(hub.connection) as client:
        await client.apply(SECRETS, token_secret("0123456789abcdef", past))
    expired = {"--hub-token": "ocmhub.0123456789abcdef"}
    cases.append((expired, "wrong or has expired; get a new one by `knfleet get token`"))
    for change, words in cases:
        flags = [part for pair in (right | change).items() for part in pair]
        assert words in await refused(spoke.kubeconfig, "join", *flags, "--image", IMAGE), change

    flags = [part for pair in right.items() for part in pair]
    printed = await done(spoke.kubeconfig, "join", *flags, "--dry-run")
    assert "klusterlet-registration-agent" in printed
    assert told["hub-token"] not in printed
    async with Client(spoke.connection) as client:
        assert await is_clean(client)
    await check_ca_file(hub, spoke, tmp_path, flags)


async def check_ca_file(hub: Lent, spoke: Lent, folder: Path, flags: list[str]) -> None:
    """A hub that publishes nothing is joined with its CA in a file, and not without."""
    async with Client(hub.connection) as client:
        await client.delete(CONFIG_MAPS, Key("kube-public", "cluster-info"))
    said = await refused(spoke.kubeconfig, "join", *flags, "--dry-run")
    assert "the hub does not publish its CA" in said
    assert "--ca-file" in said
    right_ca = folder / "right.crt"
    assert hub.connection.endpoint.ca is not None
    right_ca.write_bytes(hub.connection.endpoint.ca)
    with_ca = (*flags, "--ca-file", str(right_ca), "--dry-run")
    assert "klusterlet" in await done(spoke.kubeconfig, "join", *with_ca)


@pytest.mark.full
async def test_a_bootstrap_token_joins_a_cluster_too(lend: Lend, small_root: Path):
    """The hub as a cluster of its own, at the address that it publishes; and one hosted by it."""
    hub, spoke = await lend(2)
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
    await check_hosted(hub, spoke, ["--hub-token", told["hub-token"]], told["hub-apiserver"])


async def check_hosted(hub: Lent, spoke: Lent, token: list[str], server: str) -> None:
    """An agent on the hub manages a cluster that has no pod of ours, and leaves nothing there."""
    await done(
        hub.kubeconfig,
        *("join", *token, "--hub-apiserver", server, "--cluster-name", "hosted1", "--wait"),
        *("--mode", "hosted", "--managed-cluster-kubeconfig", str(spoke.kubeconfig)),
        *("--image", IMAGE, "--timeout", "60"),
    )
    accept = ("accept", "--clusters", "hosted1", "--wait", "--timeout", "60")
    assert "hosted1 is available" in await done(hub.kubeconfig, *accept)
    async with Client(hub.connection) as client, Client(spoke.connection) as managed:
        found = await client.get(CLUSTERS, "hosted1")
        configs = found["spec"]["managedClusterClientConfigs"]
        assert [each["url"] for each in configs] == [spoke.connection.endpoint.server]
        assert (await managed.list(PODS)).items == []

        async def is_handed_over() -> bool:
            secret = await client.get(SECRETS, ACCESS_SECRET, "hosted1")
            return "token" in (secret.get("data") or {})

        await until(is_handed_over, "access to the hosted cluster is handed over")
        assert "hosted1 has left" in await done(
            hub.kubeconfig, "unjoin", "--cluster-name", "hosted1", "--timeout", "60"
        )
        assert await is_clean(managed)
        assert (await client.get(KLUSTERLETS, "klusterlet"))["metadata"]["name"] == "klusterlet"
