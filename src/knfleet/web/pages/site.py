"""The dashboard's answers to those who look: pages, streams, files."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from knfleet.api.meta import Key
from knfleet.kube.errors import KubeError, Unauthorized
from knfleet.web.live.channels import LiveChannels
from knfleet.web.live.event_stream import stream
from knfleet.web.live.feed import HubFeed
from knfleet.web.pages import templates, views
from knfleet.web.pages.detail import DetailSources, DetailView
from knfleet.web.pages.page import WebPage
from knfleet.web.pages.routes import PATHS, Route, route_of
from knfleet.web.pages.views import Build, FormContext
from knfleet.web.server.authorization import VisibleObjects, visible_objects
from knfleet.web.server.sessions import STREAMS, WebSession, WebSessions
from knfleet.web.server.settings import WebSettings

LONGEST_SECONDS = 60.0
"""How long a stream goes on without an answer to what its viewer may see."""
SESSION = web.RequestKey("session", WebSession)
KEPT = "public, max-age=31536000, immutable"
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
NOT_THERE = "There is no such thing on this hub, or you may not see it."


class Site:
    """Pages and streams."""

    def __init__(
        self, sources: DetailSources, sessions: WebSessions, settings: WebSettings
    ) -> None:
        self.sources = sources
        self.sessions = sessions
        self.settings = settings
        self.live = LiveChannels(sources.feed)

    @property
    def feed(self) -> HubFeed:
        return self.sources.feed

    def routes(self) -> list[web.RouteDef]:
        """What is answered."""
        return [
            *(web.get(path, self.page) for path in PATHS),
            web.get("/live", self.stream),
            web.get("/static/{file}", static),
        ]

    async def page(self, request: web.Request) -> web.Response:
        session = request[SESSION]
        route = route_of(request.raw_path.partition("?")[0], request.query)
        if route is None:
            raise web.HTTPNotFound(text=NOT_THERE)
        await self.feed.ready()
        await self.refresh_rights(session)
        detail = self.detail_view(route, session)
        if detail is not None:
            await detail.refresh()
        page = self.build(route, session, detail)()
        if page is None:
            raise web.HTTPNotFound(text=NOT_THERE)
        return self.answer(request, page)

    def answer(self, request: web.Request, page: WebPage, status: int = 200) -> web.Response:
        """A page as HTML."""
        session = request.get(SESSION)
        text = templates.draw(
            page.template,
            page=page,
            rev=page.digest(),
            at=request.path_qs,
            session=session,
            here=request.path,
            said=session.take_message() if session is not None else "",
        )
        response = web.Response(text=text, content_type="text/html", status=status)
        response.enable_compression()
        return response

    async def refresh_rights(self, session: WebSession) -> None:
        """Read what a user may see, unless that was read lately."""
        if session.is_owner or self.age(session) < self.settings.rights_seconds:
            return
        try:
            session.visible = await visible_objects(session.client, self.feed.namespaces())
        except Unauthorized:
            await self.sessions.close(session)
            raise web.HTTPUnauthorized(text="Your token is not valid any more.") from None
        session.seen_at = self.sessions.clock()

    def age(self, session: WebSession) -> float:
        """For how long it has been known what a user may see."""
        return self.sessions.clock() - session.seen_at

    def detail_view(self, route: Route, session: WebSession) -> DetailView | None:
        """What must be known beside the fleet, for pages about one installation."""
        if route.name != "install":
            return None
        return DetailView(self.sources, session, *route.installation())

    def build(self, route: Route, session: WebSession, detail: DetailView | None) -> Build:
        """How a page is drawn, now and again."""
        if detail is not None:
            forms = FormContext(session.csrf if self.settings.actions else "")
            return partial(self.install, detail, forms)
        # By value: viewers who see the same share the page, and one of them may see more later.
        return partial(self.shared, route, session.visible)

    def install(self, detail: DetailView, forms: FormContext) -> WebPage | None:
        """The page of an installation."""
        about = detail.about()
        return None if about is None else views.install(about, forms)

    def shared(self, route: Route, visible: VisibleObjects) -> WebPage | None:
        """A page that is the same for all who see the same."""
        if route.name == "work":
            found = self.feed.work(Key(*route.parts), visible)
            notes = self.feed.work_notes(route.parts[0], visible)
            return None if found is None else views.work(found, notes)
        if route.name == "addons":
            return views.addons(self.feed.addons(visible), self.feed.addon_notes(visible), route)
        fleet = self.feed.fleet(visible)
        if route.name == "cluster":
            (name,) = route.parts
            works = self.feed.works(name, visible)
            return views.cluster(fleet, route, works, self.feed.work_notes(name, visible))
        return views.PAGES[route.name](fleet, route, self.sources.installable(fleet))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """What changes on an open page."""
        session = request[SESSION]
        at = urlsplit(request.query.get("at", "/"))
        route = route_of(at.path, dict(parse_qsl(at.query)))
        if route is None:
            raise web.HTTPNotFound(text=NOT_THERE)
        if self.live.is_full or session.streams >= STREAMS:
            raise web.HTTPServiceUnavailable(text="Too many pages are open; close some.")
        await self.refresh_rights(session)
        detail = self.detail_view(route, session)
        if detail is not None:
            await detail.refresh()
            if not session.is_owner:
                await detail.may_go_on()
        key = (route, session.visible) if detail is None else detail
        with self.live.channel(key, self.build(route, session, detail)) as channel:
            if channel is None:
                raise web.HTTPNotFound(text=NOT_THERE)
            going_on = partial(self.may_go_on, session, session.visible, detail)
            every = self.settings.rights_seconds
            sending = stream(request, channel, self.live, may_go_on=going_on, every_seconds=every)
            session.streams += 1
            try:
                return await (sending if detail is None else beside(detail, sending))
            finally:
                session.streams -= 1

    async def may_go_on(
        self, session: WebSession, visible: VisibleObjects, detail: DetailView | None
    ) -> bool:
        """Whether a stream still shows what its viewer may see."""
        if not self.sessions.is_open(session):
            return False
        if session.is_owner:
            # The user who started the dashboard may leave it on a screen.
            self.sessions.find(session.id)
            return True
        try:
            await self.refresh_rights(session)
            return session.visible == visible and (detail is None or await detail.may_go_on())
        except web.HTTPUnauthorized:
            return False
        except KubeError:
            return self.age(session) < LONGEST_SECONDS


async def beside(
    detail: DetailView, sending: Coroutine[None, None, web.StreamResponse]
) -> web.StreamResponse:
    """Keep an installation current while its page is open."""
    async with asyncio.TaskGroup() as group:
        following = group.create_task(detail.follow())
        try:
            return await sending
        finally:
            following.cancel()


async def static(request: web.Request) -> web.Response:
    """A file of ours."""
    name = request.match_info["file"]
    found = templates.static_files().get(name)
    if found is None:
        raise web.HTTPNotFound(text="There is no such file.")
    content, digest = found
    is_asked = request.query.get("v") == digest
    response = web.Response(
        body=content,
        content_type=TYPES[name.rpartition(".")[2]],
        charset="utf-8",
        headers={"Cache-Control": KEPT if is_asked else "no-cache"},
    )
    response.enable_compression()
    return response
