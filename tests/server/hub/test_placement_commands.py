"""Commands about placements, typed against a hub that runs."""

from pathlib import Path

import msgspec
import pytest

from knfleet.api.cluster.placement import PLACEMENTS
from knfleet.api.core import NAMESPACES
from knfleet.api.meta import Key
from knfleet.api.work.manifestwork import WORKS
from knfleet.api.work.replicaset import REPLICA_SETS
from knfleet.kube.client.verbs import Client
from knfleet.kube.yaml import dump_all
from testbed import hubs
from testbed.clusters import Lend
from testbed.waiting import until
from tests.support.commands import done, refused, type_in
from tests.support.placements import add_clusters, bind, decided, thing

TRIAL = """
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata:
  name: trial
spec:
  predicates:
  - requiredClusterSelector:
      celSelector:
        celExpressions: ["managedCluster.metadata.name == 'p-b'"]
"""


async def test_placements_are_created_shown_and_explained(lend: Lend, tmp_path: Path):
    (hub,) = await lend(1, definitions=True)
    await hubs.install(hub.connection)
    async with Client(hub.connection) as client, hubs.running(hub.connection):
        await client.create(NAMESPACES, thing(NAMESPACES, "apps"))
        nothing = await type_in(hub.kubeconfig, "create", "placement", "early", "-n", "apps")
        assert "knfleet clusterset bind global -n apps" in nothing.err
        await bind(client, "apps", "default")
        await add_clusters(client, ["p-a", "p-b"], region="apac")
        await add_clusters(client, ["p-c"], region="emea")
        flags = ("--label-selectors", "region in (apac,other)", "--count", "1")

        created = await done(hub.kubeconfig, "create", "placement", "web", "-n", "apps", *flags)
        assert created == "Placement apps/web is created\n"
        await decided(client, "apps", "web", "p-a")
        again = await refused(hub.kubeconfig, "create", "placement", "web", "-n", "apps")
        assert "exists already; --overwrite changes it" in again
        prioritizer = ("--prioritizers", "BuiltIn:Steady:3,AddOn:usage:cpu:-1")
        await done(
            hub.kubeconfig,
            *("create", "placement", "web", "-n", "apps", *flags, *prioritizer, "--overwrite"),
        )
        spec = (await client.get(PLACEMENTS, "web", "apps"))["spec"]
        assert [each["weight"] for each in spec["prioritizerPolicy"]["configurations"]] == [3, -1]

        shown = (await done(hub.kubeconfig, "get", "placements", "web")).splitlines()
        assert " ".join(shown[0].split()) == (
            "NAMESPACE NAME SUCCEEDED REASON SELECTEDCLUSTERS AGE"
        )
        assert shown[1].split()[:5] == ["apps", "web", "True", "AllDecisionsScheduled", "1"]
        tree = await done(hub.kubeconfig, "get", "placements", "-n", "apps", "-o", "tree")
        assert "  Group number 0 (1 clusters)\n    p-a\n" in tree
        wrong = await refused(hub.kubeconfig, "get", "placements", "wep")
        assert "Placement wep does not exist" in wrong

        told = await done(hub.kubeconfig, "placement", "explain", "web", "-n", "apps")
        assert "    3 in bound sets (default)" in told
        assert "    2 match the predicates" in told
        rows = {line.split()[0]: line for line in told.splitlines() if line.startswith("p-")}
        assert rows["p-a"].split()[1] == "Selected"
        assert rows["p-b"].split()[1] == "Rank"
        assert "label region is 'emea', must be In apac, other" in rows["p-c"]

        (tmp_path / "trial.yaml").write_text(TRIAL)
        tried = msgspec.json.decode(
            await done(
                hub.kubeconfig,
                *("placement", "explain", "-f", str(tmp_path / "trial.yaml")),
                *("-n", "apps", "-o", "json"),
            )
        )
        steps = {each["cluster"]: each["step"] for each in tried["clusters"]}
        assert steps == {"p-a": "Predicate", "p-b": "Selected", "p-c": "Predicate"}
        assert await client.get(PLACEMENTS, "web", "apps")
        assert "trial" not in await done(hub.kubeconfig, "get", "placements")
        await client.delete(PLACEMENTS, Key("apps", "web"))


@pytest.mark.full
async def test_wrong_placements_are_refused_with_what_to_write(lend: Lend, tmp_path: Path):
    (hub,) = await lend(1, definitions=True)
    create = ("create", "placement", "web")
    explain = ("placement", "explain")
    broken = tmp_path / "broken.yaml"
    broken.write_text(TRIAL.replace("== 'p-b'", "= 'p-b'"))
    await hubs.install(hub.connection)

    assert "needs values" in await refused(hub.kubeconfig, *create, "--label-selectors", "a in ()")
    assert "write it as BuiltIn:Steady:3" in await refused(
        hub.kubeconfig, *create, "--prioritizers", "Steady"
    )
    assert "Syntax error" in await refused(hub.kubeconfig, *create, "--cel", "managedCluster.")
    assert "give either the NAME" in await refused(hub.kubeconfig, *explain)
    assert "does not exist" in await refused(hub.kubeconfig, *explain, "nothing")
    printed = await type_in(hub.kubeconfig, *explain, "-f", str(broken))
    assert printed.code == 1
    assert "Misconfigured: predicate 1: CEL expression" in printed.out


@pytest.mark.full
async def test_objects_are_sent_to_the_clusters_of_a_placement(lend: Lend, tmp_path: Path):
    (hub,) = await lend(1, definitions=True)
    await hubs.install(hub.connection)
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "web", "namespace": "default"},
    }
    (tmp_path / "web.yaml").write_text(dump_all([config_map]))
    create = ("create", "work", "web", "-f", str(tmp_path / "web.yaml"), "--placement")
    async with Client(hub.connection) as client, hubs.running(hub.connection):
        assert "does not exist" in await refused(hub.kubeconfig, *create, "apps/web")
        assert "NAMESPACE/NAME" in await refused(hub.kubeconfig, *create, "web")
        assert "either --clusters or --placement" in await refused(hub.kubeconfig, *create[:-1])
        await client.create(NAMESPACES, thing(NAMESPACES, "p-a"))
        await bind(client, "apps", "default")
        await done(hub.kubeconfig, "create", "placement", "web", "-n", "apps")
        await decided(client, "apps", "web")
        assert "placement explain web" in await refused(hub.kubeconfig, *create, "apps/web")
        await add_clusters(client, ["p-a"])
        await decided(client, "apps", "web", "p-a")

        made = await done(hub.kubeconfig, *create, "apps/web", "--replicaset")
        assert made == "create replica set apps/web\n"
        again = await refused(hub.kubeconfig, *create, "apps/web", "--replicaset")
        assert "--overwrite changes its objects" in again
        changed = await done(hub.kubeconfig, *create, "apps/web", "--replicaset", "--overwrite")
        assert changed == "update replica set apps/web\n"

        async def is_there() -> bool:
            return len((await client.list(WORKS, "p-a")).items) == 1

        await until(is_there, "the cluster has a work")
        unaccepted = await refused(hub.kubeconfig, *create, "apps/web")
        assert "cluster p-a is not accepted" in unaccepted
        await client.delete(REPLICA_SETS, Key("apps", "web"))
