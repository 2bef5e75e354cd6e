"""`python -m knfleet.dev.node --config FILE` runs one cluster's node until SIGTERM."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

# structlog loads rich for tracebacks on terminals, if it is there: eight megabytes in each node
# that is never seen.
sys.modules["rich"] = None  # pyright: ignore[reportArgumentType]  # how an import is ruled out

import structlog  # noqa: E402  after the line above

from knfleet.dev.node.api_connection import read_connection  # noqa: E402
from knfleet.dev.node.config import NodeConfig, load  # noqa: E402
from knfleet.dev.node.node import run  # noqa: E402


def configure_logs() -> None:
    """Log one line per event to standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


async def main(config: NodeConfig) -> None:
    """Run the node until a signal asks it to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(config, read_connection(config.kubeconfig, config.cluster), stop)


def parse() -> NodeConfig:
    """The configuration that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m knfleet.dev.node", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="a JSON file, see NodeConfig")
    return load(parser.parse_args().config)


def loop_factory() -> asyncio.AbstractEventLoop:
    """uvloop where it exists: it needs a quarter of the memory for TLS connections."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    configure_logs()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main(parse()))
