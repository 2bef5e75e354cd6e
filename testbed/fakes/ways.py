"""The way from an operator to an API server: it can be closed, swallow everything, or be slow."""

import asyncio
from typing import Any

from testbed.fakes.proxies import Wire


class Way(Wire):
    """A wire whose bytes can be held back; what was held arrives when it is opened again."""

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self.open = asyncio.Event()
        self.open.set()
        self.delay_seconds = 0.0

    async def join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        """Carry bytes between a client and a server, unless they are held back."""
        await self.open.wait()
        far_reader, far_writer = await asyncio.open_connection(host, port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self.carry_on(reader, far_writer))
                both.create_task(self.carry_on(far_reader, writer))
        except* OSError:
            pass
        finally:
            far_writer.transport.abort()

    async def carry_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes one way; the end of one way ends both."""
        while chunk := await reader.read(65536):
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            await self.open.wait()
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError("one side has ended")

    async def __aexit__(self, *why: Any) -> None:
        self.server.close()
        # A connection that was accepted just now is cut only once its task has begun.
        await asyncio.sleep(0)
        await super().__aexit__(*why)
