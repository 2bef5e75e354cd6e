"""Where a pod's files are: at the root, or, for a pod that is a process, below a folder."""

import os
from collections.abc import Mapping
from pathlib import Path

POD_ROOT = "KNFLEET_POD_ROOT"
"""Names the folder below which a pod's volumes are, when it is not `/`."""
SERVICE_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"


def pod_path(path: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The file that a path means to a pod: the one in its volumes, if there is one."""
    root = environ.get(POD_ROOT)
    if root and path.startswith("/"):
        inside = Path(root) / path.lstrip("/")
        if inside.exists():
            return inside
    return Path(path)


def service_account(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with the pod's token."""
    return Path(environ.get(POD_ROOT) or "/") / SERVICE_ACCOUNT
