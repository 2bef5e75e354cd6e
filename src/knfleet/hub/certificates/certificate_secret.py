"""Writes certificates to the Secret that all replicas of the hub serve them from."""

from knfleet.api.core import SECRETS
from knfleet.api.meta import Key, Object
from knfleet.hub.certificates.port_certificates import PortCertificates
from knfleet.kube.client.verbs import Client
from knfleet.runtime.logs import log


async def write_certificates(
    client: Client, key: Key, found: Object | None, made: PortCertificates
) -> None:
    """Keep certificates; `Conflict` when the Secret has changed since it was read."""
    meta: Object = {"name": key.name, "namespace": key.namespace}
    if found is not None:
        meta["resourceVersion"] = found["metadata"]["resourceVersion"]
    manifest: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
    await client.apply(SECRETS, {**manifest, "data": made.data()})
    log.info(
        "serving certificates written",
        secret=str(key),
        until=str(made.serving.not_valid_after_utc),
        authorities=len(made.authorities),
    )
