"""Takes dev clusters down when the one who needed them is gone, however it went.

Reads standard input, which the owner never writes to: its end is the owner's end. Signals that are
meant for the owner reach the janitor, too, if both are in one group, as by Ctrl-C or `timeout`; it
stays until it has cleaned up.
"""

import signal
import sys
from pathlib import Path

from knfleet.dev.dev_clusters import DevClusters
from knfleet.dev.dev_folder import DevFolder


def main() -> None:
    """Wait for the owner's end, then clean up."""
    for blow in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(blow, signal.SIG_IGN)
    sys.stdin.buffer.read()
    DevClusters(DevFolder(Path(sys.argv[1]))).down()


if __name__ == "__main__":
    main()
