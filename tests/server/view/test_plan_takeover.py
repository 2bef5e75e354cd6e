"""A plan for objects of the Knative Operator says what taking them over changes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, SERVICES
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.change_set import FailureKind
from knfleet.apply.engine import Engine
from knfleet.apply.plan.steps import StepAction
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.kube.endpoint import Connection
from knfleet.view.differences import differences
from knfleet.view.plan.dry_run import ADOPT_TRIES, tried
from tests.server.apply.test_apply_takeover import install
from tests.support.objects import HOME, SET, config_map, deployment, namespace, service


@pytest.fixture
async def go_operator(hub_connection: Connection) -> AsyncIterator[Client]:
    """A client that writes as the Go operator does."""
    async with Client(hub_connection, ClientOptions(manager="manifestival")) as client:
        yield client


def richer(manifest: Object) -> Object:
    """A Deployment of an older release, with more of everything."""
    made: Object = {**manifest, "spec": {**manifest["spec"], "minReadySeconds": 7}}
    pod: Object = made["spec"]["template"]["spec"]
    pod["nodeSelector"] = {"zone": "a"}
    pod["containers"][0]["args"] = ["--old"]
    pod["containers"][0]["env"].append({"name": "OLD", "value": "x"})
    pod["containers"].append({"name": "old", "image": "example.com/old:1"})
    return made


async def test_what_goes_with_the_old_owner_is_in_the_plan(
    hub: Client, go_operator: Client
) -> None:
    """Keys, items, whole containers; what the server fills in by itself stays."""
    await hub.create(NAMESPACES, namespace(HOME))
    resources = (DEPLOYMENTS, SERVICES, CONFIG_MAPS, CONFIG_MAPS)
    old = [
        richer(deployment("web")),
        service("web"),
        config_map("settings", a="1", b="2"),
        config_map("same", a="1"),
    ]
    for resource, manifest in zip(resources, old, strict=True):
        await install(go_operator, resource, manifest)
    wanted = [
        deployment("web", "example.com/app:2"),
        service("web"),
        config_map("settings", a="3", c="4"),
        config_map("same", a="1"),
    ]
    engine = Engine(hub, SET)

    steps = (await engine.plan(wanted)).steps
    trials = await tried(hub, steps, HOME)
    applied = await Engine(hub, SET).apply(wanted)
    live = await asyncio.gather(
        *(hub.get(each.step.desired.resource, each.ref.name, HOME) for each in trials)
    )

    assert {step.verdict for step in steps} == {StepAction.ADOPT}
    assert applied.settled
    for trial, after in zip(trials, live, strict=True):
        said = differences(trial.before, trial.after)
        assert said == differences(trial.before, after), trial.ref
    fields = {each.field for trial in trials for each in differences(trial.before, trial.after)}
    assert {
        "data.b",
        "data.c",
        "spec.minReadySeconds",
        "spec.template.spec.containers[name=old]",
        "spec.template.spec.containers[name=app].env[name=OLD]",
        "spec.template.spec.nodeSelector.zone",
    } <= fields


class Disturbed(Client):
    """A client whose object somebody else writes just before each of its replacements."""

    def disturb(self, times: int) -> None:
        """Have it written that many times."""
        self.writes_left = times

    async def replace(self, resource: Resource, manifest: Object, **options: Any) -> Object:
        """Replace an object, which is another one by now."""
        if self.writes_left:
            self.writes_left -= 1
            note: Object = {"metadata": {"annotations": {"seen": str(self.writes_left)}}}
            await self.patch(resource, Key.of(manifest), note)
        return await super().replace(resource, manifest, **options)


@pytest.mark.parametrize(("times", "why"), [(3, None), (ADOPT_TRIES, FailureKind.CONFLICT)])
async def test_an_object_that_others_write_meanwhile_is_tried_again(
    hub: Client,
    go_operator: Client,
    hub_connection: Connection,
    times: int,
    why: FailureKind | None,
) -> None:
    """As a Deployment that is rolled out; when it never rests, the plan says so."""
    await hub.create(NAMESPACES, namespace(HOME))
    await install(go_operator, CONFIG_MAPS, config_map("settings", a="1", b="2"))
    steps = (await Engine(hub, SET).plan([config_map("settings", a="1")])).steps

    async with Disturbed(hub_connection) as client:
        client.disturb(times)
        (trial,) = await tried(client, steps, HOME)

    assert client.writes_left == 0
    assert (trial.failure and trial.failure.why) == why
    if why is None:
        assert "data.b" in {each.field for each in differences(trial.before, trial.after)}
    else:
        assert trial.failure is not None
        assert "home/settings is written all the time" in trial.failure.message
