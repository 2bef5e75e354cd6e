"""What people do: edit what is installed, and change, remove and make custom resources."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random

from knfleet.api.core import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply import well_known
from knfleet.apply.manifest_fields import part
from knfleet.dev.cluster_contents import contents
from knfleet.dev.manual_profiles import FLEET
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError, NotFound
from tests.chaos.evidence import Removed
from tests.chaos.faults import persist
from tests.chaos.foreign import MARK
from tests.chaos.plan import Step
from tests.chaos.resources import FIRST, Wanted, changed, upgraded
from tests.chaos.stage import Stage

EDIT_SECONDS = 8.0
GONE_SECONDS = 240.0
"""How long a removal may take while neither its spoke nor the hub nor the leader is struck."""
POLL_SECONDS = 0.2

Edit = Callable[[Client, Key], Awaitable[object]]


async def scale(client: Client, key: Key) -> None:
    """Run another number of pods."""
    await client.patch(DEPLOYMENTS, key, {"spec": {"replicas": 4}}, deadline=EDIT_SECONDS)


async def swap_image(client: Client, key: Key) -> None:
    """Run something else in the first container."""
    path = "/spec/template/spec/containers/0/image"
    change = {"op": "replace", "path": path, "value": "example.com/mine:1"}
    await client.patch(DEPLOYMENTS, key, [change], deadline=EDIT_SECONDS)


async def overwrite(client: Client, key: Key) -> None:
    """Write another text over the first entry of a ConfigMap."""
    found = await client.get(CONFIG_MAPS, key.name, key.namespace, deadline=EDIT_SECONDS)
    entries = sorted(found.get("data") or ()) or ["mine"]
    change: Object = {"data": {entries[0]: "by hand"}}
    await client.patch(CONFIG_MAPS, key, change, deadline=EDIT_SECONDS)


def deletion(resource: Resource) -> Edit:
    """Delete an object of a kind."""

    async def delete(client: Client, key: Key) -> None:
        await client.delete(resource, key, deadline=EDIT_SECONDS)

    return delete


EDITS: tuple[tuple[str, Resource, Edit], ...] = (
    ("scale", DEPLOYMENTS, scale),
    ("change the image of", DEPLOYMENTS, swap_image),
    ("delete", DEPLOYMENTS, deletion(DEPLOYMENTS)),
    ("overwrite", CONFIG_MAPS, overwrite),
    ("delete", CONFIG_MAPS, deletion(CONFIG_MAPS)),
    ("delete", SERVICES, deletion(SERVICES)),
    ("delete", SERVICE_ACCOUNTS, deletion(SERVICE_ACCOUNTS)),
    ("delete", CLUSTER_ROLES, deletion(CLUSTER_ROLES)),
    ("delete the anchor", CONFIG_MAPS, deletion(CONFIG_MAPS)),
)


async def edit(stage: Stage, step: Step) -> str:
    """Do something to an object on a spoke that is not for people to touch; what was done."""
    random = Random(step.draw)
    client = stage.spokes[step.target].client
    verb, resource, act = random.choice(EDITS)
    label = well_known.SET_ID if "anchor" in verb else well_known.PART_OF
    try:
        listing = await client.list(
            resource, labels=label, metadata_only=True, deadline=EDIT_SECONDS
        )
        ours = [each for each in listing.items if MARK not in part(each, "metadata", "labels")]
        if not ours:
            return f"nothing to {verb} on {step.target}"
        key = Key.of(random.choice(ours))
        await act(client, key)
    except KubeError as error:
        return f"{step.target} was not edited: {error}"
    return f"{verb} {resource.plural} {key} on {step.target}"


async def change(stage: Stage, step: Step) -> str:
    """Change one thing in the spec of a custom resource."""
    return await rewrite(
        stage, step.target, lambda each, spec: changed(each.resource, spec, step.draw)
    )


async def upgrade(stage: Stage, step: Step) -> str:
    """Ask for the other version."""
    return await rewrite(stage, step.target, lambda _, spec: upgraded(spec))


async def rewrite(stage: Stage, title: str, decide: Callable[[Wanted, Object], Object]) -> str:
    """Write another spec into a custom resource."""
    wanted, hub = stage.wanted[title], stage.hub.client
    after: Object = {}

    async def write() -> None:
        nonlocal after
        found = await hub.get(wanted.resource, wanted.key.name, wanted.key.namespace, deadline=5)
        after = decide(wanted, found["spec"])
        replaced = [{"op": "add", "path": "/spec", "value": after}]
        await hub.patch(wanted.resource, wanted.key, replaced, deadline=5)

    async with stage.locks[title]:
        await persist(write, f"{title} is changed")
    return f"{title} asks for {after}"


async def recreate(stage: Stage, step: Step) -> str:
    """Delete a custom resource, see that nothing of it is left, and create it again."""
    wanted = stage.wanted[step.target]
    async with stage.locks[step.target]:
        began = time.time()
        await persist(lambda: delete(stage, wanted), f"{step.target} is asked to go")
        await see_gone(stage, wanted)
        seconds = time.time() - began
        await persist(lambda: note_left(stage, wanted), f"what is left of {step.target} is known")
        await create(stage, wanted)
    return f"{step.target} was gone after {seconds:.0f} s, and is there again"


async def see_gone(stage: Stage, wanted: Wanted) -> None:
    """Wait until a custom resource is no longer on the hub; only time without faults counts."""
    calm, before = 0.0, time.monotonic()
    while not await is_gone(stage, wanted):
        now = time.monotonic()
        calm += now - before if stage.is_calm(wanted.spoke) else 0
        before = now
        assert calm < GONE_SECONDS, f"not within {calm:.0f} calm seconds: {wanted.title} is gone"
        await asyncio.sleep(POLL_SECONDS)


async def create(stage: Stage, wanted: Wanted) -> None:
    """Create a custom resource as it was at first."""
    manifest = wanted.manifest(FIRST[wanted.resource], FLEET)
    await persist(
        lambda: stage.hub.client.apply(wanted.resource, manifest, deadline=5),
        f"{wanted.title} is created",
    )


async def delete(stage: Stage, wanted: Wanted) -> None:
    """Ask for the deletion of a custom resource."""
    try:
        await stage.hub.client.delete(wanted.resource, wanted.key, deadline=5)
    except NotFound:
        return


async def is_gone(stage: Stage, wanted: Wanted) -> bool:
    """Whether a custom resource is no longer on the hub."""
    try:
        await stage.hub.client.get(
            wanted.resource, wanted.key.name, wanted.key.namespace, deadline=5
        )
    except NotFound:
        return True
    except KubeError:
        return False
    return False


async def note_left(stage: Stage, wanted: Wanted) -> None:
    """Write down what is on the spoke of a custom resource that is gone.

    Its anchor, and every object with the label and the hash that we put on members; the cluster
    itself copies only one of the two, to Endpoints and ReplicaSets.
    """
    spoke, gone_at = stage.spokes[wanted.spoke], time.time()
    async with Client(spoke.lent.connection) as client:
        found = await contents(client)
    left = [
        f"{each.resource.plural} {each.key}"
        for each, item in found.items()
        if (each.resource == CONFIG_MAPS and each.key == wanted.anchor)
        or (
            part(item, "metadata", "labels").get(well_known.PART_OF) == wanted.applyset.id
            and well_known.APPLIED_HASH in part(item, "metadata", "annotations")
        )
    ]
    stage.evidence.removed.append(Removed(gone_at, wanted.title, tuple(sorted(left))))


HANDS = {"edit": edit, "change": change, "upgrade": upgrade, "recreate": recreate}
"""What is done once, and what came of it."""
