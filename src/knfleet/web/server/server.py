"""The dashboard as a part of a process: it listens, and ends when the process does."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError
from knfleet.runtime.http.connection_limits import ConnectionLimits
from knfleet.runtime.http.listener import HttpListener
from knfleet.runtime.logs import log
from knfleet.web.pages import templates
from knfleet.web.pages.detail import DetailSources
from knfleet.web.pages.forms import FormHandlers
from knfleet.web.pages.object_pages import ObjectPages
from knfleet.web.pages.page import WebPage
from knfleet.web.pages.site import NOT_THERE, SESSION, Site
from knfleet.web.server import request_checks
from knfleet.web.server.login import LoginService
from knfleet.web.server.sessions import WebSessions
from knfleet.web.server.settings import WebSettings, check, not_free, tls_context

CLOSE_SECONDS = 2.0
LONGEST_FORM = 64 * 1024
FORM_SECONDS = 30.0
"""How long a form may take to arrive and to be dealt with."""
CONNECTIONS = 600
"""Every page that can be open has one, and some are about to be."""
PER_ADDRESS = 200
OPEN = ("/login", "/enter", "/static/")
"""What is answered without a login."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Dashboard:
    """Serves the dashboard of one hub while it runs."""

    def __init__(
        self, connection: Connection, sources: DetailSources, settings: WebSettings
    ) -> None:
        check(settings)
        self.settings = settings
        self.sources = sources
        self.sessions = WebSessions(settings.idle_seconds)
        self.site = Site(sources, self.sessions, settings)
        self.door = LoginService(connection, sources.hub, self.sessions)
        self.desk = FormHandlers(self.site, self.door)
        self.objects = ObjectPages(self.site)
        self.address: tuple[str, int] | None = None
        """Where it listens, once it does."""
        self.listening = asyncio.Event()

    @property
    def url(self) -> str:
        """Where to look; with the key that lets the one in who started it."""
        assert self.address is not None
        host, port = self.address
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if self.settings.has_tls else "http"
        base = f"{scheme}://{shown}:{port}/"
        return base if self.settings.login else f"{base}enter?key={self.door.key}"

    async def run(self) -> None:
        """Serve until cancelled."""
        await asyncio.to_thread(templates.prepare)
        listener = HttpListener(self.app(), self.limits(), CLOSE_SECONDS)
        try:
            tls = await self.listen(listener)
            async with asyncio.TaskGroup() as group:
                group.create_task(listener.run(tls))
                group.create_task(self.sources.feed.run())
                group.create_task(self.site.live.run())
                group.create_task(self.sessions.run())
                if not self.settings.login:
                    group.create_task(self.door.know_owner())
        finally:
            self.site.live.end()
            self.sources.feed.close()
            await listener.close()

    async def listen(self, listener: HttpListener) -> ssl.SSLContext | None:
        """Take the address; raises `SettingError` when that cannot be."""
        settings = self.settings
        tls = tls_context(settings)
        try:
            host, port = self.address = await listener.open(settings.host, settings.port)
        except OSError as error:
            raise not_free(settings, error) from error
        self.desk.port = port
        log.info("serving the dashboard", host=host, port=port, login=settings.login)
        self.listening.set()
        return tls

    def limits(self) -> ConnectionLimits:
        """What of the server one address may take; a proxy has all visitors behind it."""
        each = CONNECTIONS if self.settings.plain else PER_ADDRESS
        return ConnectionLimits(connections=CONNECTIONS, per_address=each)

    def app(self) -> web.Application:
        """What is served."""
        app = web.Application(middlewares=[self.receive], client_max_size=LONGEST_FORM)
        app.on_response_prepare.append(request_checks.harden)
        app.add_routes([*self.site.routes(), *self.objects.routes(), *self.desk.routes()])
        return app

    @web.middleware
    async def receive(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request pass that may, and answer errors with a page."""
        try:
            request_checks.check_host(request, self.settings)
            if not request.path.startswith(OPEN):
                session = self.desk.session(request)
                if session is None:
                    return self.stranger(request)
                request[SESSION] = session
            async with asyncio.timeout(FORM_SECONDS if request.method == "POST" else None):
                return await handler(request)
        except TimeoutError:
            return self.failed(request, 408, "The form took too long; load the page again.")
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return self.failed(request, error.status, sentence_of(error))
        except KubeError as error:
            return self.failed(request, 502, f"The hub did not answer as it should: {error}.")

    def stranger(self, request: web.Request) -> web.Response:
        """The answer to a user who is not logged in."""
        if self.settings.login and request.method == "GET" and request.path != "/live":
            return web.Response(status=303, headers={"Location": "/login"})
        return self.failed(
            request, 401, "You are not logged in; open the address that was printed at the start."
        )

    def failed(self, request: web.Request, status: int, text: str) -> web.Response:
        """A page that says what is wrong."""
        if request.path == "/live":
            return web.Response(status=status, text=text)
        page = WebPage("Not possible", "error.html", facts={"text": text, "status": status})
        return self.site.answer(request, page, status)


def sentence_of(error: web.HTTPException) -> str:
    """What is wrong, in our words where we had any."""
    is_ours = error.text and not error.text.startswith(f"{error.status}:")
    return str(error.text) if is_ours else f"{NOT_THERE if error.status == 404 else error.reason}"
