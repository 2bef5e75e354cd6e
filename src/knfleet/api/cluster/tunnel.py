"""Names by which hub, agents and consumers of the tunnel find each other."""

from typing import Literal

TUNNEL_CONFIG = "knfleet-tunnel"
"""The ConfigMap in the hub's namespace that tells agents where to connect; all of them read it."""
ENDPOINT, SERVER_NAME, AUTHORITIES = "endpoint", "server-name", "ca.crt"
"""What it holds: host:port, the name in the hub's certificate, and the CA to trust as PEM."""
TUNNEL_SECRET = "knfleet-tunnel"  # noqa: S105  a name
"""The Secret in the hub's namespace with the certificate of the tunnel's ports, and its CA."""
KEY_SECRET = "knfleet-tunnel-keys"  # noqa: S105  a name
"""The Secret in the hub's namespace from which routing keys are made."""

TUNNEL_SERVICE = "knfleet-tunnel"
"""The Service in the hub's namespace that agents connect to."""
FRONT_SERVICE = "knfleet-tunnel-front"
"""The Service in the hub's namespace that consumers connect to."""
AGENT_PORT, FRONT_PORT = 8443, 8444
"""The port that agents connect to, and that of consumers."""
BY_LOAD_BALANCER = "LoadBalancer"
"""As endpoint: the address that the Service gets from its load balancer."""

TUNNEL_LEASE = "knfleet-tunnel"
"""The Lease in a cluster's namespace that says which replica of the hub has its tunnel."""
ROUND_TRIP = "knfleet.dev/tunnel-round-trip-milliseconds"
"""Annotation of that Lease: what was measured when the tunnel opened."""

REACHED_BY = "reached-by.knfleet.dev"
"""Property of a ClusterProfile: `direct` or `tunnel`; there when the hub has a tunnel."""
TUNNEL_SINCE = "tunnel-since.knfleet.dev"
"""Property of a ClusterProfile: since when the tunnel of its cluster is open."""
TUNNEL_ROUND_TRIP = "tunnel-round-trip-milliseconds.knfleet.dev"
"""Property of a ClusterProfile: what was measured when the tunnel opened."""

TUNNEL_MODE, TUNNEL_SERVER = "tunnel", "tunnel-server"
"""What an agent hands over beside its token: how the cluster is to be reached, and the URL of its
API server at the other end of the tunnel."""

TunnelMode = Literal["always", "auto", "never"]
"""How a cluster is to be reached; `auto`: by the tunnel if the hub cannot reach it directly."""
