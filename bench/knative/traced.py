"""`knfleet` with a line of JSON for every request, in the file that KNFLEET_TRACE names."""

import atexit
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import aiohttp

from knfleet.cli.main import main
from knfleet.kube.client.transport import TRACES

FILE = Path(os.environ["KNFLEET_TRACE"]).open("a", buffering=1 << 20)  # noqa: SIM115 - until the end
atexit.register(FILE.close)


async def begun(
    _: aiohttp.ClientSession, context: SimpleNamespace, __: aiohttp.TraceRequestStartParams
) -> None:
    """A request is about to be sent."""
    context.begun = time.time()
    context.connected = 0.0


async def connected(
    _: aiohttp.ClientSession, context: SimpleNamespace, __: aiohttp.TraceConnectionCreateEndParams
) -> None:
    """A connection was made for a request."""
    context.connected = time.time() - context.begun


async def ended(
    _: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
) -> None:
    """The head of an answer is here."""
    line = {
        "at": context.begun,
        "seconds": time.time() - context.begun,
        "connect": context.connected,
        "method": params.method,
        "port": params.url.port,
        "path": params.url.raw_path_qs,
        "code": params.response.status,
    }
    FILE.write(json.dumps(line) + "\n")
    FILE.flush()


if __name__ == "__main__":
    TRACES.on_request_start.append(begun)
    TRACES.on_connection_create_end.append(connected)
    TRACES.on_request_end.append(ended)
    main()
