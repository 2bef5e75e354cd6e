"""Settings of the process that stands in for one cluster's node."""

from pathlib import Path

import msgspec
from msgspec import Struct


class NodeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One cluster's node: who it is, whom it talks to, and where it keeps its things."""

    cluster: str
    kubeconfig: Path
    """Administrator rights; for the node itself, never given to pods."""
    api_server: str
    """The `https://` address that pods get as KUBERNETES_SERVICE_HOST and _PORT."""
    api_server_ca: Path
    egress_socket: Path
    """Where the API server asks for connections to Services, pods and the kubelet."""
    pods_folder: Path
    loopback_net: int
    """The second octet of the loopback addresses on which this cluster's real pods listen."""
    webhook_ca_certificate: Path
    webhook_ca_key: Path
    node: str = "dev-node"
    images: tuple[str, ...] = ("knfleet",)
    """Last components of image repositories whose containers run as real processes."""


def load(path: Path) -> NodeConfig:
    """The configuration in a JSON file; raises `msgspec.ValidationError` for a wrong one."""
    return msgspec.json.decode(path.read_bytes(), type=NodeConfig, dec_hook=as_path)


def dump(config: NodeConfig) -> bytes:
    """The JSON that `load` reads."""
    return msgspec.json.encode(config, enc_hook=str)


def as_path(wanted: type, value: object) -> object:
    """Paths are written as strings."""
    if wanted is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"{value!r} is not a {wanted.__name__}")
