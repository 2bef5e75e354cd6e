"""`knfleet plan` and `knfleet apply`, typed as people do, beside a running operator."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from knfleet.api.core import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS, SERVICE_ACCOUNTS
from knfleet.api.knative.resources import SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.apply.refs import Ref
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.yaml import dump_all, load
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.view.installation_objects import ObjectState, diff_of, objects_of
from knfleet.view.plan.model import FleetPlan, PlannedAction
from knfleet.view.plan.plan_file import PlanOutdated, write
from knfleet.view.plan.subjects import by_name, with_version
from knfleet.view.target_access import providers_for
from testbed.operators import Hub, Operator
from tests.support.commands import refused, type_in
from tests.support.fleets import Fleet

NAME = "knative-serving/knative"


def serving(folder: Path, **spec: Any) -> Path:
    """A file with a custom resource of the small release."""
    manifest: Object = {
        "apiVersion": SERVINGS.api_version,
        "kind": SERVINGS.kind,
        "metadata": {"name": "knative", "namespace": "knative-serving"},
        "spec": {"ingress": {}, **spec},
    }
    path = folder / "serving.yaml"
    path.write_text(dump_all([manifest]))
    return path


async def test_a_plan_is_made_saved_carried_out_and_refused_when_the_world_moved(
    knative_hub: Hub, small: Operator, small_root: Path, tmp_path: Path
) -> None:
    """From nothing to an upgrade: each exit code means what it says."""
    config = knative_hub.lent.kubeconfig
    source = ("--dir", str(small_root))
    kept = tmp_path / "plan.json"

    file = serving(tmp_path, version="1.22")
    first = await type_in(config, "plan", "-f", str(file), "--save", str(kept), *source)
    assert first.code == 2, first
    assert "to be created" in first.out
    assert "  create  Deployment knative-serving/controller" in first.out
    assert "    example.com/controller:1.22.0" in first.out
    applied = await type_in(config, "apply", "--plan", str(kept), "--wait", *source)
    assert (applied.code, applied.out.splitlines()) == (
        0,
        [f"KnativeServing/{NAME} written", f"KnativeServing/{NAME} is ready"],
    ), applied

    settled = await type_in(config, "plan", NAME, *source)
    assert settled.code == 0, settled
    assert "Nothing to do." in settled.out

    upgrade = ("plan", NAME, "--version", "1.23", *source)
    text = await type_in(config, *upgrade, "--save", str(kept))
    assert text.code == 2, text
    lines = text.out.splitlines()
    assert lines[:3] == [
        f"KnativeServing {NAME} on hub (1.22.0 → 1.23.0)",
        "  spec.version: 1.22 → 1.23",
        "  DELETE  ConfigMap knative-serving/only-1.22",
    ]
    (plan,) = msgspec.json.decode(kept.read_bytes(), type=FleetPlan).plans
    assert {each.ref.name for each in plan.by(PlannedAction.DELETE)} == {"only-1.22", "only-1-22"}
    assert {"example.com/controller:1.23.0", "example.com/only-1-23:1.23.0"} <= set(plan.images)

    too_far = await type_in(config, "plan", NAME, "--version", "1.24", *source)
    assert too_far.code == 1
    assert "across multiple MINOR versions" in too_far.out
    assert "go to 1.23.0 first, one minor version at a time" in too_far.out

    async with Client(knative_hub.lent.connection, ClientOptions(manager="meddler")) as meddler:
        key = Key("knative-serving", "config-network")
        await meddler.patch(CONFIG_MAPS, key, {"data": {"theirs": "x"}})
    moved = await refused(config, "apply", "--plan", str(kept), *source)
    assert "the world moved: " in moved
    assert "ConfigMap knative-serving/config-network changed since the plan was made" in moved

    await knative_hub.change(SERVINGS, config={"network": {"a": "b"}})
    moved = await refused(config, "apply", "--plan", str(kept), *source)
    assert f"KnativeServing {NAME}: it was changed since the plan was made" in moved
    found = await knative_hub.get(SERVINGS)
    assert found["spec"]["version"] == "1.22"


@pytest.mark.full
async def test_what_the_server_refuses_is_told_of_each_object(
    knative_hub: Hub, small: Operator, small_root: Path, tmp_path: Path
) -> None:
    """A reader sees the plan, and which rights the rest of it needs; the exit code is 1."""
    await knative_hub.create(SERVINGS, version="1.23", ingress={})
    await knative_hub.ready(SERVINGS, "1.23.0")
    await small.kill()
    client = knative_hub.client
    stale = with_version(await by_name(client, NAME), "1.22")
    await knative_hub.change(SERVINGS, config={"network": {"a": "b"}})
    with pytest.raises(PlanOutdated, match="was changed just now; make the plan again"):
        await write(client, stale)
    await knative_hub.change(SERVINGS, config=None)
    await client.delete(CONFIG_MAPS, Key("knative-serving", "config-features"))
    reader = await a_reader(client, knative_hub.lent.kubeconfig, tmp_path / "reader")

    printed = await type_in(reader, "plan", NAME, "--dir", str(small_root))

    assert printed.code == 1, printed
    assert (
        "ERROR  ConfigMap knative-serving/config-features: not allowed to patch configmaps in"
        " knative-serving; grant this"
    ) in printed.out
    named = await refused(reader, "plan", "knativ", "--dir", str(small_root))
    assert "there is no KnativeServing or KnativeEventing knativ; did you mean knative?" in named

    releases = Releases(small_root, cache=ParsedCache(tmp_path / "cache"))
    live = await knative_hub.get(SERVINGS)
    await client.patch(
        CONFIG_MAPS, Key("knative-serving", "config-network"), {"data": {"version": "theirs"}}
    )
    rows = await objects_of(client, live, providers=None, releases=releases)
    standing = {each.ref.name: each.standing for each in rows if each.ref.kind == "ConfigMap"}
    assert standing["config-features"] == ObjectState.MISSING
    assert standing["config-network"] == ObjectState.DIFFERS
    assert standing["only-1.23"] == ObjectState.AS_DESIRED
    assert [each.standing for each in rows][:2] == [ObjectState.MISSING, ObjectState.DIFFERS]
    (field,) = await diff_of(
        client,
        live,
        Ref("", "ConfigMap", "knative-serving", "config-network"),
        providers=None,
        releases=releases,
    )
    assert (field.field, field.before, field.after) == ("data.version", "theirs", "1.23.0")


@pytest.mark.full
async def test_one_spoke_that_fails_hides_no_other(fleet: Fleet, small_root: Path) -> None:
    """All custom resources are planned, and the exit code says that something is in the way."""
    await fleet.start()
    await fleet.deploy("one", on="spoke1", version="1.22.0")
    await fleet.deploy("two", on="spoke2", version="1.22.0")
    await fleet.hub.ready(SERVINGS, "1.22.0", "one")
    await fleet.hub.ready(SERVINGS, "1.22.0", "two")
    config = fleet.hub.lent.kubeconfig
    flags = (
        "--dir",
        str(small_root),
        "--clusterprofile-provider-file",
        str(fleet.providers),
        "-o",
        "json",
    )
    fleet.two.spoil("exit 3\n")
    printed = await type_in(config, "plan", "--all", "--version", "1.23", *flags)

    assert printed.code == 1, printed
    one, two = msgspec.json.decode(printed.out, type=FleetPlan).plans
    assert (one.name, one.target, one.installed, one.wanted) == (
        "one",
        "fleet/spoke1",
        "1.22.0",
        "1.23.0",
    )
    assert not one.problems
    assert {each.ref.name for each in one.by(PlannedAction.DELETE)} == {"only-1.22", "only-1-22"}
    assert "exit" in str(two.problems[0]) or "plugin" in str(two.problems[0])

    live = await fleet.hub.get(SERVINGS, "one")
    releases = Releases(small_root, cache=ParsedCache(fleet.folder / "cache"))
    providers = providers_for(fleet.providers)
    rows = await objects_of(fleet.hub.client, live, providers=providers, releases=releases)
    assert {each.standing for each in rows} == {ObjectState.AS_DESIRED}


async def a_reader(client: Client, kubeconfig: Path, path: Path) -> Path:
    """A kubeconfig of somebody who may read everything and write nothing."""
    meta = {"name": "reader", "namespace": "default"}
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    for resource, rest in (
        (SERVICE_ACCOUNTS, {"metadata": meta}),
        (CLUSTER_ROLES, {"metadata": {"name": "reader"}, "rules": [rule]}),
        (
            CLUSTER_ROLE_BINDINGS,
            {
                "metadata": {"name": "reader"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "reader",
                },
                "subjects": [{"kind": "ServiceAccount", **meta}],
            },
        ),
    ):
        made: Object = {"apiVersion": resource.api_version, "kind": resource.kind, **rest}
        await client.apply(resource, made)
    asked: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await client.create(
        SERVICE_ACCOUNTS, asked, "default", name="reader", subresource="token"
    )
    config = load(kubeconfig.read_bytes())
    for user in config["users"]:
        user["user"] = {"token": answer["status"]["token"]}
    path.write_text(json.dumps(config))
    return path
