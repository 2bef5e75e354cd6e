"""Commands that make a network namespace, and that run in one.

A process that is started by `making` holds the namespace; its only interface is the loopback one,
so that nothing outside can connect to what listens inside. With user namespaces no root is needed.
"""

import os
import shutil
import subprocess

TOOLS = ("unshare", "nsenter")
TRIAL_SECONDS = 10.0


def making() -> list[str]:
    """The words in front of a command that begins a namespace."""
    return ["unshare", "--net"] if is_root() else ["unshare", "--user", "--map-root-user", "--net"]


def entering(holder: int) -> list[str]:
    """The words in front of a command that is to run in the namespace of a process."""
    user = [] if is_root() else ["--user", "--preserve-credentials"]
    return ["nsenter", "--target", str(holder), *user, "--net", "--"]


def problem() -> str:
    """Why there can be no network namespaces here; empty when there can be."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} of util-linux not found"
    try:
        tried = subprocess.run(
            [*making(), "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unshare failed: {type(error).__name__}"
    return tried.stderr.decode(errors="replace").strip() if tried.returncode else ""


def is_root() -> bool:
    return os.geteuid() == 0
