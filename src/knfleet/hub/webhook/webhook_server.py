"""The HTTPS server for webhooks: handlers by path, limits on bytes, time and number of requests.

API servers do not say who they are, so anything that reaches the port may ask: handlers only
decide, and see no secrets. The certificate comes from a Secret that the leader keeps; a new one is
used for new connections.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Protocol

from aiohttp import web

from knfleet.hub.certificates.port_certificates import PortCertificates
from knfleet.hub.webhook.admission_review import Answer, ReviewError
from knfleet.kube.auth.tls import load_pair
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.errors import CredentialError
from knfleet.runtime.http.connection_limits import ConnectionLimits
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.http.listener import HttpListener
from knfleet.runtime.logs import log

BODY_BYTES = 8 * 1024 * 1024
"""More than a review with an old and a new object of the largest size that API servers store."""
REQUEST_SECONDS = 10.0
"""For waiting, reading and answering together."""
AT_ONCE = 8
"""So many bodies are in memory at once; others wait."""
LIMITS = ConnectionLimits(connections=512, per_address=256)
CLOSE_SECONDS = 1.0
SMALL_BYTES = 64 * 1024
"""Smaller bodies are answered on the event loop."""


class WebhookObserver(Protocol):
    """Is told about each request; metrics are made of it."""

    def webhook(self, path: str, code: int) -> None:
        """A request was answered."""
        ...


class WebhookServer:
    """Serves handlers over HTTPS, from when there is a certificate."""

    def __init__(
        self, bind: ListenAddress, handlers: Mapping[str, Answer], observe: WebhookObserver
    ) -> None:
        self.bind = bind
        self.handlers = dict(handlers)
        self.observe = observe
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.context = server_context()
        self.certificate = b""
        """The certificate that is served."""
        self.ready = asyncio.Event()
        self.address: tuple[str, int] | None = None
        self.listening = asyncio.Event()

    def follow(self, secrets: Informer) -> None:
        """Serve the certificate of a Secret, as it changes."""
        secrets.on_change(self.take)

    def take(self, change: StoreChange) -> None:
        """The Secret changed; without a usable certificate the last one is served."""
        kept = PortCertificates.of(change.new)
        if kept is None or kept.certificate == self.certificate:
            return
        try:
            load_pair(self.context, kept.certificate, kept.key)
        except CredentialError as error:
            log.warning("webhook certificate not usable", error=str(error))
            return
        self.certificate = kept.certificate
        self.ready.set()
        log.info("webhook certificate loaded", until=str(kept.serving.not_valid_after_utc))

    async def run(self) -> None:
        """Serve until cancelled."""
        await self.ready.wait()
        listener = HttpListener(self.app(), LIMITS, CLOSE_SECONDS)
        try:
            host, port = self.address = await listener.open(self.bind.host, self.bind.port)
            self.listening.set()
            log.info("serving webhooks", host=host, port=port)
            await listener.run(self.context)
        finally:
            await listener.close()

    def app(self) -> web.Application:
        """What is served."""
        app = web.Application(client_max_size=BODY_BYTES)
        for path in self.handlers:
            app.router.add_post(path, self.receive)
        return app

    async def receive(self, request: web.Request) -> web.Response:
        """Answer one request within the limits."""
        path = request.path
        try:
            async with asyncio.timeout(REQUEST_SECONDS), self.slots:
                body = await answered(self.handlers[path], await request.read())
            response = web.Response(body=body, content_type="application/json")
        except ReviewError as error:
            response = web.Response(status=400, text=f"{error}\n")
        except TimeoutError:
            response = web.Response(status=503, text="busy; ask again\n")
            response.force_close()
        except web.HTTPException as error:
            self.observe.webhook(path, error.status)
            raise
        self.observe.webhook(path, response.status)
        return response


async def answered(answer: Answer, body: bytes) -> bytes:
    """The response of a handler; large bodies are handled in a thread."""
    if len(body) <= SMALL_BYTES:
        return answer(body)
    return await asyncio.to_thread(answer, body)


def server_context() -> ssl.SSLContext:
    """A TLS context for a server, still without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
