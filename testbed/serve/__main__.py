"""`python -m testbed.serve --config FILE --images FILE` runs one cluster's node until SIGTERM."""

import argparse
import asyncio
import signal
from pathlib import Path

from knfleet.dev.node.__main__ import configure_logs, loop_factory
from knfleet.dev.node.api_connection import read_connection
from knfleet.dev.node.config import load
from testbed.serve import images
from testbed.serve.node import run


async def main(config_file: Path, images_file: Path) -> None:
    """Run the node until a signal asks it to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    config = load(config_file)
    connection = read_connection(config.kubeconfig, config.cluster)
    await run(config, images.load(images_file), connection, stop)


if __name__ == "__main__":
    configure_logs()
    parser = argparse.ArgumentParser(prog="python -m testbed.serve", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="a JSON file, see NodeConfig")
    parser.add_argument("--images", type=Path, required=True, help="a JSON file, see Images")
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main(given.config, given.images))
