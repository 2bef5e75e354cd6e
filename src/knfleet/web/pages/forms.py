"""The dashboard's answers to those who want something: to come in, to leave, to act."""

from datetime import UTC, datetime

from aiohttp import web

from knfleet.api.meta import Key
from knfleet.web.pages import actions
from knfleet.web.pages.detail import with_kind
from knfleet.web.pages.page import WebPage
from knfleet.web.pages.routes import KINDS
from knfleet.web.pages.site import NOT_THERE, SESSION, Site
from knfleet.web.server import request_checks
from knfleet.web.server.login import LoginFailed, LoginService
from knfleet.web.server.sessions import WebSession


class FormHandlers:
    """Login, logout and actions."""

    def __init__(self, site: Site, door: LoginService) -> None:
        self.site = site
        self.door = door
        self.settings = site.settings
        self.sessions = site.sessions
        self.port = site.settings.port
        """Where the server listens, once it does."""

    def routes(self) -> list[web.RouteDef]:
        """What is answered."""
        found = [web.post("/logout", self.logout)]
        if self.settings.login:
            found += [web.get("/login", self.ask), web.post("/login", self.login)]
        else:
            found += [web.get("/enter", self.enter)]
        if self.settings.actions:
            found += [web.post("/cr/{kind}/{namespace}/{name}/{action}", self.act)]
        return found

    @property
    def cookie(self) -> str:
        """The name of the cookie; ports of one host share cookies, so it names the port."""
        prefix = "__Host-" if self.settings.has_tls else ""
        return f"{prefix}knfleet-{self.port}"

    def session(self, request: web.Request) -> WebSession | None:
        """Who asks."""
        return self.sessions.find(request.cookies.get(self.cookie, ""))

    def remember(self, response: web.Response, session: WebSession) -> None:
        """Give the browser what it shows from now on."""
        response.set_cookie(
            self.cookie,
            session.id,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=self.settings.has_tls,
        )

    async def ask(self, request: web.Request) -> web.Response:
        """Ask for a token."""
        return self.login_page(request, "")

    def login_page(self, request: web.Request, problem: str) -> web.Response:
        """The page that asks for a token."""
        page = WebPage("Log in", "login.html", facts={"problem": problem})
        return self.site.answer(request, page, 401 if problem else 200)

    async def login(self, request: web.Request) -> web.Response:
        """Log a user in with a token."""
        request_checks.check_origin(request)
        form = await request_checks.read_form(request)
        try:
            session = await self.door.by_token(form.get("token", ""))
        except LoginFailed as error:
            return self.login_page(request, str(error))
        response = web.Response(status=303, headers={"Location": "/"})
        self.remember(response, session)
        return response

    async def enter(self, request: web.Request) -> web.Response:
        """Let the one in who started the dashboard."""
        try:
            session = await self.door.by_key(request.query.get("key", ""))
        except LoginFailed as error:
            raise web.HTTPUnauthorized(text=str(error)) from error
        # A page and no redirect: a strict cookie is not sent along a redirect from elsewhere.
        response = self.site.answer(request, WebPage("Welcome", "enter.html"))
        self.remember(response, session)
        return response

    async def logout(self, request: web.Request) -> web.Response:
        """Log a user out."""
        session, _ = await self.checked(request)
        await self.sessions.close(session)
        response = web.Response(status=303, headers={"Location": "/"})
        response.del_cookie(self.cookie, path="/")
        return response

    async def checked(self, request: web.Request) -> tuple[WebSession, dict[str, str]]:
        """Who sends a form, and what is in it, if it is one of ours."""
        request_checks.check_origin(request)
        session = request[SESSION]
        form = await request_checks.read_form(request)
        if not session.allows(form.get("csrf", "")):
            raise web.HTTPForbidden(text="This form is too old; load the page again.")
        return session, form

    async def act(self, request: web.Request) -> web.Response:
        """Do what a user wants done to an installation, with their rights."""
        session, form = await self.checked(request)
        action = request.match_info["action"]
        resource = KINDS.get(request.match_info["kind"])
        if resource is None or action not in actions.REASONS:
            raise web.HTTPNotFound(text=NOT_THERE)
        key = Key(request.match_info["namespace"], request.match_info["name"])
        await self.site.refresh_rights(session)
        manifest = self.site.feed.find(resource, key)
        if manifest is None or not session.visible.sees(resource, key.namespace):
            raise web.HTTPNotFound(text=NOT_THERE)
        manifest = with_kind(manifest, resource)
        wish = actions.ActionRequest(action, session.user, form.get("version", ""))
        clients = actions.ActionClients(self.door.hub, session.client)
        fleet = self.site.feed.fleet(session.visible)
        known = self.site.sources.installable(fleet).get(resource.kind, ())
        try:
            patch = actions.patch_for(wish, manifest, known, datetime.now(UTC))
            await actions.act(wish, manifest, resource, patch=patch, clients=clients)
            session.said = f"Done: {actions.sentence(wish, manifest)}."
        except actions.ActionFailed as error:
            session.doubt()
            session.said = str(error)
        return web.Response(status=303, headers={"Location": request.path.rpartition("/")[0]})
