"""One open page: what changes on it goes out as server-sent events until it is closed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web

from knfleet.web.live.channels import Channel, LiveChannels

BEAT_SECONDS = 15.0
"""So often a silent stream says that it is alive."""
BEAT = b": alive\n\n"
ENDED = b"event: ended\ndata: {}\n\n"
"""The session is over, or sees something else now: the page must be loaded again."""
HEADERS = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}

MayGoOn = Callable[[], Awaitable[bool]]


async def stream(
    request: web.Request,
    channel: Channel,
    live: LiveChannels,
    *,
    may_go_on: MayGoOn,
    every_seconds: float,
) -> web.StreamResponse:
    """Send what changes on a page, until its viewer or the server leaves.

    Every so often it is asked whether the stream may go on, whatever is sent on it.
    """
    response = web.StreamResponse(headers=HEADERS)
    await response.prepare(request)
    try:
        # Read once more after preparing, which may have taken a while.
        version = channel.version
        is_old = channel.page.digest() != request.query.get("rev")
        await response.write(channel.whole() if is_old else BEAT)
        pause = min(BEAT_SECONDS, every_seconds)
        next_check = now() + pause
        while not live.ending.is_set():
            await waited(channel, version, next_check - now())
            if live.ending.is_set():
                break
            if now() >= next_check:
                if not await may_go_on():
                    await response.write(ENDED)
                    break
                next_check = now() + pause
            text, version = channel.since(version), channel.version
            await response.write(text or BEAT)
    except ConnectionError:
        # The page was closed, which is how most streams end.
        pass
    return response


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


async def waited(channel: Channel, version: int, seconds: float) -> None:
    """Wait for something to tell, for a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await channel.newer(version)
