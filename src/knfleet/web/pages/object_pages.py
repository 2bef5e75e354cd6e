"""The objects of an installation on its target, and how one of them differs from desired.

Each look compares everything with the target, which takes a while; so few are made at once, and a
page of objects says when it was made instead of following changes.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web
from msgspec import UNSET, Struct

from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Object
from knfleet.apply.refs import GroupKind, Ref
from knfleet.view.differences import FieldChange
from knfleet.view.fleet_model import InstallRow
from knfleet.view.installation_objects import ObjectRow, ObjectState, diff_of, objects_of
from knfleet.view.plan.planner import PLANNED_ERRORS
from knfleet.web.pages.detail import DetailView, with_kind
from knfleet.web.pages.page import WebPage
from knfleet.web.pages.routes import route_of
from knfleet.web.pages.site import NOT_THERE, SESSION, Site

AT_ONCE = 3
LOOK_SECONDS = 45.0
STANDS = {
    ObjectState.REFUSED: "bad",
    ObjectState.MISSING: "bad",
    ObjectState.DIFFERS: "busy",
    ObjectState.NOT_READY: "busy",
    ObjectState.LEFT_OVER: "unknown",
    ObjectState.AS_DESIRED: "ok",
}
NO_RELEASES = (
    "The dashboard has no release files, so it cannot show the desired state; start it with"
    " --releases, or get them with knfleet bundle pull."
)
Looked = tuple[tuple[ObjectRow, ...], str]


class FieldDifference(Struct, frozen=True):
    """A field that differs, as text."""

    field: str
    before: str = ""
    after: str = ""
    is_secret: bool = False


class ObjectPages:
    """Pages of objects."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.sources = site.sources
        self.slots = asyncio.Semaphore(AT_ONCE)

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/cr/{kind}/{namespace}/{name}/objects", self.page)]

    async def page(self, request: web.Request) -> web.Response:
        """All objects of an installation, and the differences of one if it is asked for."""
        session = request[SESSION]
        path = request.raw_path.partition("?")[0].removesuffix("/objects")
        route = route_of(path, {})
        if route is None:
            raise web.HTTPNotFound(text=NOT_THERE)
        await self.site.feed.ready()
        await self.site.refresh_rights(session)
        detail = DetailView(self.sources, session, *route.installation())
        about = detail.about()
        if about is None:
            raise web.HTTPNotFound(text=NOT_THERE)
        manifest = with_kind(about.manifest, detail.resource)
        problem = await detail.not_allowed()
        rows, problem = ((), problem) if problem else await self.rows(manifest)
        chosen = parsed(request.query.get("object", ""))
        changes, note = ((), "")
        if chosen is not None and not problem:
            changes, note = await self.changes(manifest, chosen)
        facts = facts_of(about.chain.install, rows, problem)
        facts |= {"chosen": chosen, "changes": changes, "note": note}
        title = f"Objects of {about.chain.install.name}"
        return self.site.answer(request, WebPage(title, "objects.html", facts=facts))

    async def rows(self, manifest: Object) -> Looked:
        """All objects, or why they are unknown."""
        releases = self.sources.releases
        if releases is None:
            return (), NO_RELEASES
        try:
            async with asyncio.timeout(LOOK_SECONDS), self.slots:
                found = await objects_of(
                    self.sources.hub,
                    manifest,
                    providers=self.sources.providers,
                    releases=releases,
                )
        except TimeoutError:
            return (), f"The target did not answer everything within {LOOK_SECONDS:g} s."
        except PLANNED_ERRORS as error:
            return (), str(error)
        return found, ""

    async def changes(self, manifest: Object, ref: Ref) -> tuple[tuple[FieldDifference, ...], str]:
        """What the operator would change on an object, or why that is unknown."""
        assert self.sources.releases is not None
        try:
            async with asyncio.timeout(LOOK_SECONDS), self.slots:
                found = await diff_of(
                    self.sources.hub,
                    manifest,
                    ref,
                    providers=self.sources.providers,
                    releases=self.sources.releases,
                )
        except TimeoutError:
            return (), f"The target did not answer everything within {LOOK_SECONDS:g} s."
        except (LookupError, *PLANNED_ERRORS) as error:
            return (), str(error)
        return tuple(map(change_of, found)), "" if found else "It is as desired."


def facts_of(row: InstallRow, rows: tuple[ObjectRow, ...], problem: str) -> dict[str, Any]:
    """What the template draws."""
    counts = {standing: sum(each.standing == standing for each in rows) for standing in ObjectState}
    return {
        "row": row,
        "rows": [(each, STANDS[each.standing], written(each.ref)) for each in rows],
        "counts": {standing.value: count for standing, count in counts.items() if count},
        "problem": problem,
        "when": timestamp(datetime.now(UTC)),
    }


def written(ref: Ref) -> str:
    return f"{ref.group_kind}/{ref.key.namespace}/{ref.key.name}"


def parsed(text: str) -> Ref | None:
    """The ref of an address; None when it is none."""
    parts = text.split("/", 2)
    if len(parts) != 3 or not all((parts[0], parts[2])):
        return None
    kind = GroupKind.parse(parts[0])
    return Ref(kind.group, kind.kind, parts[1], parts[2])


def change_of(change: FieldChange) -> FieldDifference:
    return FieldDifference(
        change.field, shown(change.before), shown(change.after), change.is_secret
    )


def shown(value: Any) -> str:
    """A value as people write it; nothing for a field that is not there."""
    if value is UNSET:
        return ""
    if isinstance(value, str):
        return value or '""'
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
