"""HTTP servers on loopback whose answers a test decides on."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from knfleet.dev import ports

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def on_loopback(folder: Path, handler: Handler) -> AsyncGenerator[str, None]:
    """An address on loopback."""
    (port,) = ports.reserve(1, ports.DEFAULT_RANGE, folder)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
