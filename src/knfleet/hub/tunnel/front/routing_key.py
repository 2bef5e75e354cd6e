"""Routing keys: what a ClusterProfile's `proxy-url` carries, so that its readers reach the cluster.

A key is good for one cluster and for one namespace's profile of it. It only opens a way to the
cluster's API server, where a credential is needed as ever. It is an HMAC, so that nothing is stored
for each profile; the hub changes the secret from time to time, and accepts the one before.
"""

import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "k1"
"""Tells routing keys from tokens."""
MAC_SIZE = 20


def routing_key(secret: bytes, cluster: str, namespace: str) -> str:
    """The key in the profile of a cluster in a namespace."""
    return f"{PREFIX}.{namespace}.{mac(secret, cluster, namespace)}"


def mac(secret: bytes, cluster: str, namespace: str) -> str:
    """The part that only the hub can make."""
    text = f"knfleet tunnel\n{PREFIX}\n{cluster}\n{namespace}".encode()
    return hmac.new(secret, text, hashlib.sha256).digest()[:MAC_SIZE].hex()


def is_routing_key(password: str) -> bool:
    """Whether a password is a routing key, and no token."""
    return password.startswith(f"{PREFIX}.") and password.count(".") == 2


def key_namespace(secrets: Sequence[bytes], cluster: str, password: str) -> str | None:
    """The namespace of the profile that a key comes from; None when it is not one of ours."""
    _, namespace, given = password.split(".")
    made = [mac(secret, cluster, namespace) for secret in secrets]
    matches = [hmac.compare_digest(each, given) for each in made]
    return namespace if any(matches) else None
