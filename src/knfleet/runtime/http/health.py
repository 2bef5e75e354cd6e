"""What the process says of itself over HTTP: `/healthz`, `/readyz` and `/metrics`.

A check is a function that returns what is wrong, or nothing. `/healthz` is about whether the
process should be restarted, `/readyz` about whether it is any use right now; with `?verbose` both
show the result of each check.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from aiohttp import web

from knfleet.runtime.http.connection_limits import ConnectionLimits
from knfleet.runtime.http.listen_address import ListenAddress
from knfleet.runtime.http.listener import HttpListener
from knfleet.runtime.logs import log
from knfleet.runtime.metrics import Metrics

Check = Callable[[], str | None]
CLOSE_SECONDS = 1.0


class HealthServer:
    """A small HTTP server."""

    def __init__(
        self,
        bind: ListenAddress,
        metrics: Metrics | None = None,
        *,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.bind = bind
        self.limits = limits or ConnectionLimits()
        self.metrics = metrics
        self.health: dict[str, Check] = {}
        self.readiness: dict[str, Check] = {}
        self.address: tuple[str, int] | None = None
        """Where it listens, once it does."""
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled."""
        listener = HttpListener(self.app(), self.limits, CLOSE_SECONDS)
        try:
            host, port = self.address = await listener.open(self.bind.host, self.bind.port)
            self.listening.set()
            log.info("serving health and metrics", host=host, port=port)
            await listener.run()
        finally:
            await listener.close()

    def app(self) -> web.Application:
        """What is served, also for a server that serves more."""
        app = web.Application()
        app.router.add_get("/healthz", partial(check_response, self.health))
        app.router.add_get("/readyz", partial(check_response, self.readiness))
        if self.metrics is not None:
            app.router.add_get("/metrics", partial(metrics_response, self.metrics))
        return app


async def check_response(checks: Mapping[str, Check], request: web.Request) -> web.Response:
    """What the checks say now: 200 when nothing is wrong, else 503."""
    results = {name: run_check(check) for name, check in checks.items()}
    bad = any(problem is not None for problem in results.values())
    if "verbose" not in request.query and not bad:
        return web.Response(text="ok")
    lines = [
        f"[+]{name} ok" if problem is None else f"[-]{name} failed: {problem}"
        for name, problem in results.items()
    ]
    verdict = f"{request.path[1:]} check {'failed' if bad else 'passed'}"
    return web.Response(text="\n".join([*lines, verdict, ""]), status=503 if bad else 200)


def run_check(check: Check) -> str | None:
    """What a check says; one that cannot say it is bad."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  a broken check is an answer, too
        return type(error).__name__


async def metrics_response(metrics: Metrics, request: web.Request) -> web.Response:
    body, content_type = await metrics.scrape(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": content_type})
