"""Removing what a custom resource has installed, and the finalizer that makes us asked to.

The finalizer goes when nothing is left, and not before: whatever cannot be removed is named in a
condition, and tried again. A process that is killed on the way finds the rest by its labels.
"""

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.knative.resources import Knative
from knfleet.api.meta import Key, Object
from knfleet.apply.change_set import ChangeSet, FailureKind
from knfleet.apply.engine import Engine
from knfleet.apply.plan.steps import StepAction
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, KubeError, NotFound
from knfleet.operator.installation import Installation
from knfleet.operator.kinds import KnativeKind, finalizers_of, uid_of
from knfleet.release.errors import ReleaseError
from knfleet.release.releases import Releases
from knfleet.render.errors import RenderError
from knfleet.render.pipeline import RenderFacts, render
from knfleet.runtime.events.recorder import Events
from knfleet.runtime.logs import log

ATTEMPTS = 5


class Finalizers:
    """Puts our finalizer on custom resources of one kind, and takes it off."""

    def __init__(self, kind: KnativeKind, client: Client, events: Events) -> None:
        self.kind = kind
        self.client = client
        self.events = events

    def on(self, manifest: Object) -> bool:
        """Whether a custom resource waits for us when it is deleted."""
        return self.kind.finalizer in finalizers_of(manifest)

    async def add(self, manifest: Object) -> Object:
        """The custom resource with our finalizer; raises `Conflict` when it was written since."""
        if self.on(manifest):
            return manifest
        return await self.write(manifest, [*finalizers_of(manifest), self.kind.finalizer])

    async def remove(self, manifest: Object) -> None:
        """Let a custom resource go; others may have written it since it was seen."""
        with suppress(NotFound):
            for _ in range(ATTEMPTS):
                kept = [each for each in finalizers_of(manifest) if each != self.kind.finalizer]
                with suppress(Conflict):
                    await self.write(manifest, kept)
                    return
                key = Key.of(manifest)
                manifest = await self.client.get(self.kind.resource, key.name, key.namespace)
            raise Conflict(f"{self.kind.resource} {Key.of(manifest)} is written all the time")

    async def write(self, manifest: Object, finalizers: list[str]) -> Object:
        """Change the finalizers of a custom resource in the state that was seen."""
        meta = manifest["metadata"]
        patch: Object = {
            "metadata": {"finalizers": finalizers, "resourceVersion": meta["resourceVersion"]}
        }
        name = meta["name"]
        try:
            written = await self.client.patch(self.kind.resource, Key.of(manifest), patch)
        except (Conflict, NotFound):
            raise
        except KubeError as error:
            text = f'Failed to update finalizers for "{name}": {error}'
            self.events.warning(manifest, "FinalizerUpdateFailed", text)
            raise
        self.events.normal(manifest, "FinalizerUpdate", f'Updated "{name}" finalizers')
        return written


async def uninstall(installation: Installation, legacy: Sequence[Object]) -> ChangeSet:
    """Delete everything of an installation; `legacy` are objects that may be the Go operator's."""
    # A pass may just have been cut off: nothing is brought back from here on.
    installation.repairs.guard(())
    engine = installation.engine
    parent = await engine.parents.read()
    if not parent.is_marked and legacy:
        await adopt(installation, legacy)
    return await uninstall_set(engine)


async def uninstall_set(engine: Engine) -> ChangeSet:
    """Delete every member of a set, with its parent or without."""
    parent = await engine.parents.read()
    changes = await engine.uninstall()
    if parent.is_marked:
        return changes
    # Without a parent every kind was searched; where we may not look, we have installed nothing.
    seen = [
        each
        for each in changes.failures
        if (each.why, each.verb) != (FailureKind.FORBIDDEN, "list")
    ]
    unseen = [each for each in changes.failures if each not in seen]
    if unseen:
        rights = sorted({str(denial) for each in unseen for denial in each.denials})
        log.warning("some kinds could not be searched for what is left", missing=rights)
    return replace(changes, failures=tuple(seen))


async def adopt(installation: Installation, legacy: Sequence[Object]) -> None:
    """Make those objects ours that the Go operator installed, so that they go with the rest."""
    plan = await installation.engine.plan(legacy)
    theirs = [step.desired.ref for step in plan.steps if step.verdict == StepAction.ADOPT]
    if theirs:
        changes = await installation.engine.apply(legacy, only=theirs)
        log.info("adopted before removal", changes=str(changes))


async def legacy_objects(releases: Releases, cr: Knative) -> list[Object]:
    """What the Go operator would have installed for a custom resource, as far as we know it."""
    if not cr.status.manifests and not cr.status.version:
        return []
    try:
        objects = await releases.installed(cr)
        return render(objects, cr, RenderFacts(version=cr.status.version)).objects
    except (ReleaseError, RenderError) as error:
        log.warning("what was installed is not known", error=str(error))
        return []


async def delete_parent(installation: Installation) -> None:
    """Delete the inventory on the hub, which garbage collection would do a little later."""
    key = installation.target.parent
    with suppress(KubeError):
        parent = await installation.client.get(CONFIG_MAPS, key.name, key.namespace)
        await installation.client.delete(CONFIG_MAPS, key, uid=uid_of(parent))
