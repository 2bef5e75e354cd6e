"""`knfleet hub` as a process, with exactly the rights that `init` gives it."""

import base64
from pathlib import Path
from typing import ClassVar

from knfleet.api.operator import OPERATOR_NAMESPACE
from knfleet.dev.dev_folder import write_private
from knfleet.kube.auth.credentials import StaticCredential
from knfleet.kube.endpoint import Connection
from knfleet.kube.yaml import dump_all
from testbed.operators import Operator


class HubProcess(Operator):
    """`knfleet hub`, started as often as a test wants."""

    command: ClassVar[str] = "hub"


def kubeconfig(folder: Path, connection: Connection) -> Path:
    """A file that connects as the hub's ServiceAccount."""
    assert isinstance(connection.credentials, StaticCredential)
    ca = base64.b64encode(connection.endpoint.ca or b"").decode()
    cluster = {"server": connection.endpoint.server, "certificate-authority-data": ca}
    context = {"cluster": "hub", "user": "hub", "namespace": OPERATOR_NAMESPACE}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "hub",
        "contexts": [{"name": "hub", "context": context}],
        "clusters": [{"name": "hub", "cluster": cluster}],
        "users": [
            {"name": "hub", "user": {"token": connection.credentials.credential.token}},
        ],
    }
    path = folder / "hub.kubeconfig"
    write_private(path, dump_all([config]))
    return path
