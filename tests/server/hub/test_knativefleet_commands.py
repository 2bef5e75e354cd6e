"""`knfleet fleet`, typed against a hub that runs; the operator is played by the test."""

import json
from pathlib import Path

import msgspec
import pytest

from knfleet.api.core import CRDS
from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.inventory import PROFILES
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.dev.manual_profiles import profile_status
from knfleet.kube.client.verbs import Client
from knfleet.kube.yaml import dump_all
from testbed import hubs, small_release
from testbed.clusters import Lend, Lent
from tests.support.commands import done, refused, type_in
from tests.support.fleets import SpokeCluster
from tests.support.knative_fleets import (
    SERVING,
    SPACE,
    OperatorDouble,
    add_profiles,
    children,
    fleet,
    have,
    operated,
    reports,
    set_version,
)

STRATEGY = {
    "waves": [{"name": "canary", "names": ["a"], "minSuccessTime": "1h"}],
    "progressDeadline": "2s",
}

CRD = "things.small.example.com"
MIGRATION = "storage-version-migration-small"


async def halt_and_roll_back(config: Path, client: Client, operator: OperatorDouble) -> None:
    """A change fails on the canary, and is taken back by a user."""
    up = await type_in(config, "fleet", "plan", "prod", "--version", "1.23.0")
    assert "serving 1.21.0 → 1.22 → 1.23.0" in up.out
    assert (await type_in(config, "fleet", "plan", "prod")).code == 0
    assert await done(config, "fleet", "pause", "prod") == "KnativeFleet prod is paused\n"
    await set_version(client, "1.22.0")
    await reports(client, "RolloutPaused")
    operator.broken.add(("a", "1.22.0"))
    assert await done(config, "fleet", "resume", "prod") == "KnativeFleet prod goes on\n"
    await reports(client, "RolloutHalted")
    halted = await type_in(config, "fleet", "status", "prod", "--watch")
    assert halted.code == 1
    assert "RolloutHalted" in halted.out
    bad = await done(config, "fleet", "status", "prod")
    assert "TimedOut" in bad
    assert "Broken of a" in bad
    listed = msgspec.json.decode(await done(config, "fleet", "status", "-o", "json"))
    assert [(each["name"], each["phase"]) for each in listed] == [("prod", "RolloutHalted")]
    assert await done(config, "fleet", "retry", "prod") == "KnativeFleet prod is tried again\n"

    changed = await done(config, "fleet", "diff", "prod")
    assert "-    version: '1.21.0'" in changed.splitlines()
    assert "+    version: '1.22.0'" in changed.splitlines()
    none = await refused(config, "fleet", "diff", "prod", "--from", "7")
    assert "has no revision 7; there are 1, 2" in none
    back = await done(config, "fleet", "rollback", "prod")
    assert back == "KnativeFleet prod has the templates of revision 1 again\n"
    await have(client, a="1.21.0", b="1.21.0")
    await reports(client, "RolloutWaiting", number=3)
    rows = [each.split() for each in (await done(config, "fleet", "history", "prod")).splitlines()]
    assert [(row[0], row[2]) for row in rows[1:]] == [("2", "1.22.0"), ("3", "1.21.0")]
    assert "current," in rows[-1]


@pytest.mark.full
async def test_rollouts_are_planned_shown_and_controlled(lend: Lend, tmp_path: Path):
    (hub,) = await lend(1, definitions=True)
    await hubs.install(hub.connection)
    plan = str(tmp_path / "plan.json")
    file = tmp_path / "fleet.yaml"
    file.write_text(dump_all([fleet(version="1.21.0", strategy=STRATEGY)]))
    config = hub.kubeconfig
    async with (
        Client(hub.connection) as client,
        hubs.running(hub.connection),
        operated(client) as operator,
    ):
        await add_profiles(client, ["a", "b"])
        assert "no fleets" in await done(config, "fleet", "status")
        missing = await refused(config, "fleet", "history", "prodd")
        assert "KnativeFleet prodd does not exist" in missing

        planned = await type_in(config, "fleet", "plan", "-f", str(file), "--save", plan)
        assert planned.code == 2, planned.err
        assert "wave canary: 1 of 1 clusters change, 1 at a time" in planned.out
        assert "create" in planned.out
        assert "serving - → 1.21.0" in planned.out
        assert await children(client) == {}
        applied = await done(config, "fleet", "apply", "--plan", plan)
        assert "KnativeFleet prod is written" in applied
        outdated = await refused(config, "fleet", "apply", "--plan", plan)
        assert "was changed since the plan was made; make the plan again" in outdated

        await reports(client, "RolloutWaiting")
        shown = await done(config, "fleet", "status", "prod")
        assert "KnativeFleet prod: RolloutWaiting" in shown
        assert "Soaking" in shown
        assert "a must stay ready for minSuccessTime" in shown
        promoted = await done(config, "fleet", "promote", "prod")
        assert promoted == "wave canary of KnativeFleet prod is promoted\n"
        watched = await done(config, "fleet", "status", "prod", "--watch")
        assert watched.splitlines()[-1] == "RolloutComplete: revision 1: 2 of 2 clusters"
        nothing = await refused(config, "fleet", "promote", "prod")
        assert "has no wave that could be promoted" in nothing
        assert "failed that could be tried again" in await refused(config, "fleet", "retry", "prod")
        assert "has no earlier revision" in await refused(config, "fleet", "rollback", "prod")

        await halt_and_roll_back(config, client, operator)
        await client.delete(KNATIVE_FLEETS, Key("", "prod"))


async def test_plans_show_what_would_be_refused_and_fleets_are_paused(lend: Lend, tmp_path: Path):
    (hub,) = await lend(1, definitions=True)
    await hubs.install(hub.connection)
    wrong = fleet(overrides=[{"name": "x", "clusters": {"names": ["a"]}, "serving": {"nope": 1}}])
    (tmp_path / "wrong.yaml").write_text(dump_all([wrong]))
    (tmp_path / "none.yaml").write_text("kind: ConfigMap\napiVersion: v1\n")
    (tmp_path / "bad.yaml").write_text(dump_all([fleet(onFailure={"action": "Explode"})]))
    async with Client(hub.connection) as client:
        await add_profiles(client, ["a"])
        (tmp_path / "right.yaml").write_text(dump_all([fleet()]))
        unknown = await type_in(hub.kubeconfig, "fleet", "plan", "-f", str(tmp_path / "right.yaml"))
        version = {"status": {"version": {"kubernetes": "v1.30.2"}}}
        await client.patch(PROFILES, Key(SPACE, "a"), version, subresource="status")
        old = await type_in(hub.kubeconfig, "fleet", "plan", "-f", str(tmp_path / "right.yaml"))

        shown = await type_in(hub.kubeconfig, "fleet", "plan", "-f", str(tmp_path / "wrong.yaml"))
        empty = await refused(hub.kubeconfig, "fleet", "plan", "-f", str(tmp_path / "none.yaml"))
        bad = await refused(hub.kubeconfig, "fleet", "plan", "-f", str(tmp_path / "bad.yaml"))
        await client.create(KNATIVE_FLEETS, fleet())
        listed = await done(hub.kubeconfig, "fleet", "status")
        paused = await done(hub.kubeconfig, "fleet", "pause", "prod")
        assert (await client.get(KNATIVE_FLEETS, "prod"))["spec"]["paused"]

    assert (unknown.code, old.code) == (2, 2), unknown.err + old.err
    assert "would be refused" not in unknown.out
    assert "would be refused: cluster a: Kubernetes v1.30.2 is older than v1.34" in old.out
    assert "invalid" in shown.out
    assert "override x: serving has no field nope" in shown.out
    assert "there must be one KnativeFleet in it, not 0" in empty
    assert "onFailure.action" in bad
    assert listed.splitlines()[1].split()[0] == "prod"
    assert paused == "KnativeFleet prod is paused\n"


def definition(release: str, *versions: str) -> Object:
    """A CRD of the small release; the first version is the stored one."""
    names = {"kind": "Thing", "plural": "things"}
    shape = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    found = [
        {"name": name, "served": True, "storage": name == versions[0], "schema": shape}
        for name in versions
    ]
    spec = {"group": "small.example.com", "names": names, "scope": "Cluster", "versions": found}
    meta = {"name": CRD, "labels": small_release.labels(release)}
    return {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": meta, "spec": spec}


def releases(root: Path) -> Path:
    """Two releases, of which the second lacks a version of a CRD that the first migrates."""
    container = {"name": "migrate", "image": "example.com/migrate:1", "args": [CRD]}
    pod: Object = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    job = small_release.make("Job", MIGRATION, "1.22.0", "batch/v1", spec={"template": pod})
    more = {
        "1.22.0": [definition("1.22.0", "v1beta1", "v1"), job],
        "1.23.0": [definition("1.23.0", "v1")],
    }
    for version, objects in more.items():
        folder = root / "knative-serving" / version
        folder.mkdir(parents=True)
        text = dump_all([*small_release.objects(version), *objects])
        (folder / "1-core.yaml").write_text(text)
    return root


async def provide_access(client: Client, lent: Lent, cluster: str, folder: Path) -> Path:
    """Have the profile of a cluster lead to the hub itself; the provider file."""
    spoke = SpokeCluster(lent, client, folder)
    await spoke.enter()
    endpoint = lent.connection.endpoint
    status = profile_status("files", endpoint.server, endpoint.ca or b"")
    status["accessProviders"][0]["name"] = "files"
    await client.patch(PROFILES, Key(SPACE, cluster), {"status": status}, subresource="status")
    run = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/bin/cat",
        "args": [str(folder / f"{lent.name}.json")],
        "provideClusterInfo": True,
    }
    providers = folder / "providers.json"
    providers.write_text(json.dumps({"providers": [{"name": "files", "execConfig": run}]}))
    return providers


async def add_installed(client: Client, cluster: str, version: str) -> None:
    """A KnativeServing for a cluster that has a version, as an operator reports it."""
    spec = {
        "version": version,
        "ingress": {},
        "clusterProfileRef": {"name": cluster, "namespace": SPACE},
    }
    made = {
        "apiVersion": SERVINGS.api_version,
        "kind": SERVINGS.kind,
        "metadata": {"name": f"own-{cluster}", "namespace": SERVING},
        "spec": spec,
    }
    await client.create(SERVINGS, made)
    key = Key(SERVING, f"own-{cluster}")
    await client.patch(SERVINGS, key, {"status": {"version": version}}, subresource="status")


async def test_plans_show_images_and_definitions_that_would_be_refused(lend: Lend, tmp_path: Path):
    """A version that objects may be stored in cannot be dropped; its migration is named."""
    (hub,) = await lend(1, definitions=True)
    await hubs.install(hub.connection)
    file, plan = tmp_path / "fleet.yaml", str(tmp_path / "plan.json")
    file.write_text(dump_all([fleet(version="1.23.0")]))
    async with Client(hub.connection) as client:
        await add_profiles(client, ["a", "b"])
        providers = await provide_access(client, hub, "a", tmp_path)
        await add_installed(client, "a", "1.22.0")
        await client.create(CRDS, definition("1.22.0", "v1beta1", "v1"))
        await hubs.established(client, CRD)
        options = ("--dir", str(releases(tmp_path / "releases")))
        options += ("--clusterprofile-provider-file", str(providers), "-f", str(file))

        refused_ = await type_in(hub.kubeconfig, "fleet", "plan", *options)
        # As the migration does it.
        await client.apply(CRDS, definition("1.22.0", "v1", "v1beta1"))
        stored = {"status": {"storedVersions": ["v1"]}}
        await client.patch(CRDS, Key("", CRD), stored, subresource="status")
        after = await type_in(hub.kubeconfig, "fleet", "plan", *options, "--save", plan)
        applied = await done(hub.kubeconfig, "fleet", "apply", "--plan", plan)
        await client.delete(CRDS, Key("", CRD))

    assert (refused_.code, after.code) == (2, 2), refused_
    assert (
        f"would be refused: cluster a: serving 1.23.0: CustomResourceDefinition {CRD} has no"
        " version v1beta1 any more, in which objects may be stored; first write its objects again"
        f" in v1, as the Job {MIGRATION}" in refused_.out
    ), refused_.out
    assert "of serving 1.22.0 does, and remove v1beta1 from its status" in refused_.out
    assert "not checked: definitions of cluster b: " in refused_.out
    assert "images: 3 new of 3\n  example.com: 3 of 3" in refused_.out
    assert "  + example.com/controller:1.23.0 (serving 1.23.0)" in refused_.out
    assert "would be refused" not in after.out
    assert "KnativeFleet prod is written" in applied
