"""One open page: what changes on it goes out as server-sent events until somebody leaves."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from knfleet.web.live import Channel, Live

BEAT_SECONDS = 15.0
"""So often a silent stream says that it is alive, and is asked whether it still may be."""
BEAT = b": alive\n\n"
ENDED = b"event: ended\ndata: {}\n\n"
"""The session is over, or sees something else now: the page must be loaded again."""
HEADERS = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}

MayGoOn = Callable[[], Awaitable[bool]]


async def stream(
    request: web.Request, channel: Channel, live: Live, *, may_go_on: MayGoOn
) -> web.StreamResponse:
    """Send what changes on a page, until its viewer or the server leaves."""
    response = web.StreamResponse(headers=HEADERS)
    await response.prepare(request)
    try:
        # Read once more after preparing, which may have taken a while.
        version = channel.version
        is_old = channel.page.digest() != request.query.get("rev")
        await response.write(channel.whole() if is_old else BEAT)
        while not live.ending.is_set():
            if await waited(channel, version, live):
                text, version = channel.since(version), channel.version
                await response.write(text)
            elif live.ending.is_set():
                break
            elif await may_go_on():
                await response.write(BEAT)
            else:
                await response.write(ENDED)
                break
    except ConnectionError:
        # The page was closed, which is how most streams end.
        pass
    return response


async def waited(channel: Channel, version: int, live: Live) -> bool:
    """Wait for something to tell; False when there was nothing for a while, or all ends."""
    try:
        async with asyncio.timeout(BEAT_SECONDS):
            await channel.newer(version)
    except TimeoutError:
        return False
    return not live.ending.is_set()
