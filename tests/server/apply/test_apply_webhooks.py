"""Webhooks in the set: refusing, silent, stale, and those that others wait for."""

from base64 import b64encode

import pytest

from knfleet.api.core import CONFIG_MAPS, DEPLOYMENTS, SERVICES, VALIDATING_WEBHOOKS
from knfleet.api.meta import Key, Object
from knfleet.apply.act.writer import Deadlines
from knfleet.apply.change_set import FailureKind
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, ServerError
from testbed.clusters import Lent
from testbed.waiting import until
from tests.server.apply.conftest import Bench
from tests.support.objects import THINGS, config_map, crd, deployment, manifest, service

HOLD = "dev.knfleet.dev/hold"
BEHAVIOUR = "dev.knfleet.dev/webhook"
CLIENT: Object = {"service": {"namespace": "home", "name": "hook"}}


@pytest.fixture(autouse=True)
def trusted(lent: Lent) -> None:
    """Webhooks name the CA of the dev cluster from the start, as if by an earlier install."""
    authority = (lent.folder.pki(lent.name) / "webhook-ca.crt").read_bytes()
    CLIENT["caBundle"] = b64encode(authority).decode()


def webhook(group: str = "example.com", plural: str = "things", **rest: str) -> Object:
    """A webhook that is served by the Deployment `hook`, and looks at one kind."""
    rule: Object = {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "resources": [plural],
        "operations": ["CREATE", "UPDATE"],
    }
    hook: Object = {
        "name": "hook.example.com",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
        "clientConfig": CLIENT,
        "rules": [rule],
        **rest,
    }
    return manifest(VALIDATING_WEBHOOKS, "hook", webhooks=[hook])


def release(**annotations: str) -> list[Object]:
    """A webhook with everything behind it, and an object that it looks at."""
    workload = deployment("hook")
    workload["metadata"]["annotations"] = annotations
    return [manifest(THINGS, "thing"), webhook(), workload, service("hook"), crd()]


async def test_an_object_waits_until_its_webhook_answers(bench: Bench) -> None:
    """All in one call, although the webhook starts with it."""
    changes = await bench.engine().apply(release())

    assert changes.settled, changes.failures
    assert await bench.exists(THINGS, "thing")


async def test_an_object_whose_webhook_does_not_start_is_told_to_wait(bench: Bench) -> None:
    """With what it waits for; the rest is there, and the next call completes it."""
    brief = Deadlines(webhook_seconds=1)
    held = release(**{HOLD: "true"})
    engine = bench.engine(deadlines=brief)

    changes = await engine.apply(held)

    assert changes.failures == ()
    (pending,) = changes.pending
    assert pending.ref.kind == "Thing"
    assert "home/hook has no ready endpoint" in pending.message
    assert not await bench.exists(THINGS, "thing")

    assert (await bench.engine().apply(release())).settled


async def test_a_webhook_that_denies_is_quoted(bench: Bench, stranger: Client) -> None:
    """One object is refused, and the others are applied; when it allows again, all is well."""
    engine = bench.engine()
    objects = release()
    await engine.apply(objects)
    deny: Object = {"metadata": {"annotations": {BEHAVIOUR: "deny"}}}
    await stranger.patch(SERVICES, Key("home", "hook"), deny)
    probe = manifest(THINGS, "probe")

    async def denies() -> bool:
        try:
            await stranger.create(THINGS, probe, dry_run=True)
        except Forbidden as error:
            return "denied" in str(error)
        return False

    # A webhook with side effects could not be asked by a dry run; this one has none.
    await until(denies, "the webhook denies")
    changed = [manifest(THINGS, "thing", spec={"size": 2}), *objects[1:], config_map("fine")]

    changes = await engine.apply(changed)

    (failure,) = changes.failures
    assert failure.why == FailureKind.DENIED
    assert "hook.example.com" in failure.message
    assert [ref.name for ref in changes.created] == ["fine"]

    deny["metadata"]["annotations"] = {BEHAVIOUR: None}
    await stranger.patch(SERVICES, Key("home", "hook"), deny)

    async def settles() -> bool:
        return (await engine.apply(changed)).settled

    await until(settles, "the object is applied")


async def test_a_stale_webhook_that_blocks_its_own_release_is_made_anew(
    bench: Bench, stranger: Client
) -> None:
    """Rules that an earlier install filled in would refuse what the webhook needs to start."""
    bare = webhook()
    del bare["webhooks"][0]["rules"]
    await bench.engine().apply([config_map("first"), bare])
    stale: Object = {"webhooks": webhook("", "configmaps")["webhooks"]}
    await stranger.patch(VALIDATING_WEBHOOKS, Key("", "hook"), stale, strategic=True)

    async def blocks() -> bool:
        try:
            await stranger.create(CONFIG_MAPS, config_map("probe"), dry_run=True)
        except ServerError as error:
            return "failed calling webhook" in str(error)
        return False

    await until(blocks, "the stale webhook blocks")
    objects = [config_map("first"), config_map("second"), bare, deployment("hook")]

    changes = await bench.engine().apply([*objects, service("hook")])

    assert changes.settled, (changes.failures, changes.pending)
    assert [ref.name for ref in changes.recreated] == ["hook"]
    assert await bench.exists(CONFIG_MAPS, "second")
    assert await bench.exists(DEPLOYMENTS, "hook")
