"""The certificates that the gRPC server shows and trusts, from a Secret and a ConfigMap.

Both are watched; new ones are used for new connections, and without usable ones the last are.
"""

import base64
import binascii
import ssl
from collections.abc import Callable

from knfleet.api.core import CONFIG_MAPS, SECRETS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.manifest_fields import part
from knfleet.hub.grpc.grpc_names import BUNDLE_CONFIG_MAP, BUNDLE_KEY, SERVING_SECRET
from knfleet.hub.grpc.tls_relay import server_context
from knfleet.kube.auth.tls import readable
from knfleet.kube.cache.informer import Informer, StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.runtime.logs import log

Use = Callable[[ssl.SSLContext], None]


class ServerCertificates:
    """Follows certificates, and has a function called with a context whenever they change."""

    def __init__(self, client: Client, namespace: str, use: Use) -> None:
        self.use = use
        self.serving_key = Key(namespace, SERVING_SECRET)
        self.bundle_key = Key(namespace, BUNDLE_CONFIG_MAP)
        self.serving = informer(client, SECRETS, self.serving_key)
        self.bundle = informer(client, CONFIG_MAPS, self.bundle_key)
        self.used: tuple[bytes, str] = (b"", "")
        for each in (self.serving, self.bundle):
            each.on_change(self.changed)

    def changed(self, _change: StoreChange) -> None:
        """Use what is there now, if it can be used."""
        pair = pair_of(self.serving.get(self.serving_key))
        bundle = str(part(self.bundle.get(self.bundle_key) or {}, "data").get(BUNDLE_KEY, ""))
        if not pair or not bundle or (pair, bundle) == self.used:
            return
        try:
            with readable(pair) as path:
                context = server_context(str(path), bundle)
        except (ssl.SSLError, ValueError) as error:
            log.warning("gRPC certificates not usable", error=type(error).__name__)
            return
        self.used = (pair, bundle)
        log.info("gRPC certificates loaded")
        self.use(context)


def informer(client: Client, resource: Resource, key: Key) -> Informer:
    """The informer of one object."""
    fields = f"metadata.name={key.name}"
    return Informer(client, resource, key.namespace, fields=fields)


def pair_of(secret: Object | None) -> bytes:
    """Certificate and key of a Secret as one PEM file; empty when there is none."""
    data: dict[str, str] = (secret or {}).get("data") or {}
    try:
        parts = [base64.b64decode(data[name], validate=True) for name in ("tls.crt", "tls.key")]
    except (KeyError, binascii.Error, ValueError):
        return b""
    return b"\n".join(part.rstrip() for part in parts) + b"\n"
