"""Where an API server is, and how to trust it."""

from collections.abc import Callable

from msgspec import Struct

from knfleet.api.meta import ClusterName
from knfleet.kube.auth.credentials import CredentialSource


class Endpoint(Struct, frozen=True):
    """The address of an API server, and what its certificate must look like."""

    server: str
    """An `https://` URL; a path in it is kept in front of every request."""
    ca: bytes | None = None
    """PEM; without it the machine's own trust store counts."""
    proxy_url: str | None = None
    tls_server_name: str | None = None
    insecure: bool = False
    """Do not look at the server's certificate at all."""
    open_socket: Callable[[], int] | None = None
    """Makes TCP sockets, as files, if the address is one in another network."""

    def __repr__(self) -> str:
        # A proxy's URL may hold a password.
        proxied = ", through a proxy" if self.proxy_url else ""
        return f"Endpoint({self.server!r}{proxied})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("at", repr(self))]


class Connection(Struct, frozen=True):
    """All that is needed to open a client for one cluster."""

    cluster: ClusterName
    endpoint: Endpoint
    credentials: CredentialSource
    namespace: str = "default"
    """Where namespaced objects go by default."""
