"""Connections that are never cut off while they are being made.

When somebody stops waiting for uvloop to make a connection, it closes the connection's file, and
Python closes that file once more when its socket is collected. If another connection has got the
same number meanwhile, that one is closed, and from then on whatever gets the number fails. A busy
process with short deadlines meets it within minutes. So whoever stops waiting just leaves: the
connection is made, or fails, without anybody, and is closed then.
"""

import asyncio
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

Made = tuple[asyncio.Transport, ResponseHandler]

ABANDONED_SECONDS = 60.0
"""How long a connection that nobody waits for may take to be made or to fail."""


class Connector(aiohttp.TCPConnector):
    """Makes connections."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]  aiohttp's types
        self.making: set[asyncio.Task[Made]] = set()

    async def _wrap_create_connection(
        self, *args: Any, timeout: aiohttp.ClientTimeout, **options: Any
    ) -> Made:
        """A connection; raises `TimeoutError` when it takes too long."""
        patient = aiohttp.ClientTimeout(total=None, sock_connect=ABANDONED_SECONDS)
        connecting = super()._wrap_create_connection  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  aiohttp's types
        making = asyncio.create_task(connecting(*args, timeout=patient, **options))
        self.making.add(making)
        making.add_done_callback(self.making.discard)
        try:
            async with asyncio.timeout(timeout.sock_connect):
                return await asyncio.shield(making)
        except (asyncio.CancelledError, TimeoutError):
            making.add_done_callback(drop)
            raise


def drop(made: asyncio.Task[Made]) -> None:
    """Close a connection that nobody waits for any more."""
    if not made.cancelled() and made.exception() is None:
        made.result()[0].abort()
