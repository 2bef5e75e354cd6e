"""What people can do from the dashboard: each with their own rights, and each noted as an Event.

The Event is written first, by the process itself: what cannot be noted is not done.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from knfleet.api.core import EVENTS
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import part
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, Forbidden, KubeError
from knfleet.operator.kinds import PAUSED, TRIGGER
from knfleet.runtime.events.series import EventLog, EventRecord, EventSeries, Regarding, event_name
from knfleet.runtime.logs import log
from knfleet.web.pages.version_matrix import next_steps

COMPONENT = "knfleet-web"
REASONS = {
    "retry": "RetryRequested",
    "pause": "PauseRequested",
    "resume": "ResumeRequested",
    "upgrade": "UpgradeRequested",
}


class ActionFailed(Exception):
    """Why something was not done, in a sentence for the one who wanted it."""


class ActionRequest(Struct, frozen=True):
    """What a user wants done to a custom resource."""

    action: str
    user: str
    version: str = ""


class ActionClients(Struct, frozen=True):
    """Who writes what."""

    hub: Client
    """The process itself, which notes."""
    user: Client
    """The one who wants it, who does it."""


def patch_for(wish: ActionRequest, manifest: Object, known: Sequence[str], now: datetime) -> Object:
    """The change that a wish means; raises `ActionFailed` when it makes no sense now."""
    annotations: dict[str, dict[str, str | None]] = {
        "retry": {TRIGGER: timestamp(now)},
        "pause": {PAUSED: "true"},
        "resume": {PAUSED: None},
    }
    if wish.action in annotations:
        return {"metadata": {"annotations": annotations[wish.action]}}
    installed = str(part(manifest, "status").get("version") or "")
    allowed = next_steps(installed, known, manifest["kind"])
    if wish.version not in allowed:
        there = ", ".join(allowed) or "none"
        raise ActionFailed(
            f"{wish.version or 'nothing'} is not a next step from {installed}: {there}."
        )
    # On the very state that was looked at: what others wrote meanwhile is not written over.
    seen = {"resourceVersion": manifest["metadata"]["resourceVersion"]}
    return {"metadata": seen, "spec": {"version": wish.version}}


def sentence(wish: ActionRequest, manifest: Object) -> str:
    """What is noted."""
    if wish.action == "upgrade":
        before = part(manifest, "status").get("version") or "nothing"
        what = f"an upgrade from {before} to {wish.version}"
    else:
        what = {
            "retry": "a comparison of everything with the target",
            "pause": "the operator to leave the target alone",
            "resume": "the operator to take up its work again",
        }[wish.action]
    return f"{wish.user} asked for {what} in the dashboard"


async def note(hub: Client, wish: ActionRequest, manifest: Object, *, problem: str = "") -> None:
    """Write an Event that names the user; raises `KubeError` when that fails."""
    now = datetime.now(UTC)
    regarding = Regarding.of(manifest)
    kind = "Warning" if problem else "Normal"
    message = sentence(wish, manifest) + (f", which failed: {problem}" if problem else "")
    happening = EventRecord(regarding, kind, REASONS[wish.action], message)
    key = Key(regarding.key.namespace, event_name(regarding.key.name, now, 0))
    event = EventLog(COMPONENT).manifest(
        happening, message, EventSeries(key, 1, timestamp(now)), timestamp(now)
    )
    await hub.create(EVENTS, event, key.namespace)


async def act(
    wish: ActionRequest,
    manifest: Object,
    resource: Resource,
    *,
    patch: Object,
    clients: ActionClients,
) -> None:
    """Note a wish and do it, with the user's rights; raises `ActionFailed`."""
    hub = clients.hub
    try:
        await note(hub, wish, manifest)
    except KubeError as error:
        raise ActionFailed(
            f"Nothing was done, since it cannot be noted as an Event: {error}."
        ) from error
    try:
        await clients.user.patch(resource, Key.of(manifest), patch)
    except KubeError as error:
        await note_failure(hub, wish, manifest, error)
        if isinstance(error, Forbidden):
            raise ActionFailed(f"You may not patch {resource} there: {error.message}.") from error
        if isinstance(error, Conflict):
            raise ActionFailed("It was changed meanwhile; reload the page first.") from error
        raise ActionFailed(f"It failed: {error}.") from error
    log.info("done in the dashboard", action=wish.action, user=wish.user, key=str(Key.of(manifest)))


async def note_failure(
    hub: Client, wish: ActionRequest, manifest: Object, error: KubeError
) -> None:
    try:
        await note(hub, wish, manifest, problem=str(error))
    except KubeError as failure:
        log.warning("event not written", user=wish.user, error=str(failure))
