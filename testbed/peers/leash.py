"""Runs a program for as long as somebody holds this process's standard input open.

Whoever starts a program this way can die in any manner: the program ends with it.
"""

import contextlib
import subprocess
import sys
import threading

GRACE_SECONDS = 180.0


def main() -> int:
    """Run the program that the arguments name; its exit code."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=end, args=(child,), daemon=True).start()
    return abs(child.wait())


def end(child: subprocess.Popen[bytes]) -> None:
    """Wait for the end of standard input, then end the program: politely, then by force."""
    sys.stdin.buffer.read()
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_SECONDS)
    child.kill()


if __name__ == "__main__":
    sys.exit(main())
