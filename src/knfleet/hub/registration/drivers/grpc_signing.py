"""Registration over gRPC: signs the certificates that agents show the gRPC server.

Requests for them are approved like all others, by the controller of certificate requests.
"""

import base64
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from knfleet.api.certificate_requests import CERTIFICATES_GROUP, CSRS, GRPC_SIGNER
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.rbac_rules import rule
from knfleet.apply.manifest_fields import part
from knfleet.hub.certificates.port_certificates import (
    BACKDATED,
    PortCertificates,
    key_of,
    pem,
)
from knfleet.hub.context import HubContext
from knfleet.hub.grpc.exposure import is_enabled
from knfleet.hub.grpc.grpc_certificates import GrpcObjects
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.registration.drivers.csr import concluded
from knfleet.hub.registration.drivers.csr_rules import RequestProblem, examine, parsed
from knfleet.hub.registration.drivers.driver import HubRegistrationDriver
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Conflict, NotFound
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log

LIFE = timedelta(hours=720)
SHORTEST = timedelta(minutes=10)
RULES = (
    rule(CERTIFICATES_GROUP, [f"{CSRS.plural}/status"], ["update", "patch"]),
    rule(CERTIFICATES_GROUP, ["signers"], ["sign"], [GRPC_SIGNER]),
)


def lifetime(manifest: Object) -> timedelta:
    """How long a certificate is to live: as long as was asked for, and no longer than ours do."""
    asked = manifest["spec"].get("expirationSeconds")
    return LIFE if not asked else max(SHORTEST, min(LIFE, timedelta(seconds=int(asked))))


def issued(manifest: Object, kept: PortCertificates, now: datetime) -> bytes:
    """The certificate for a request that was examined, followed by its CA."""
    request = parsed(manifest["spec"]["request"])
    assert request is not None
    issuer, key = kept.authorities[0], key_of(kept.ca_key)
    with warnings.catch_warnings():
        # Common names of agents may be longer than X.509 wants them to be.
        warnings.simplefilter("ignore")
        certificate = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(issuer.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(min(now + lifetime(manifest), issuer.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(key, hashes.SHA256())
        )
    return pem(certificate)


class GrpcSigningController:
    """Signs approved requests to the gRPC signer."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.objects = GrpcObjects(context)

    def watches(self) -> Sequence[Watch]:
        """Requests, and the CA."""
        requests = self.context.informers.requests
        return [
            Watch(requests.on_change, self.by_request),
            Watch(self.objects.signer.on_change, self.by_signer),
        ]

    def by_request(self, change: StoreChange) -> Iterable[Request]:
        """A request changed."""
        if is_waiting(change.new):
            yield Request(HUB, change.key)

    def by_signer(self, _change: StoreChange) -> Iterable[Request]:
        """The CA is there, or another one is."""
        for manifest in self.context.informers.requests.items():
            if is_waiting(manifest):
                yield Request(HUB, Key.of(manifest))

    async def reconcile(self, request: Request) -> Result:
        """Sign one request, if it is approved and what it says."""
        manifest = self.context.informers.requests.get(request.key)
        enabled = is_enabled(self.context.configuration.manager)
        if manifest is None or not is_waiting(manifest) or not enabled:
            return Result.never()
        examined = examine(manifest)
        if isinstance(examined, RequestProblem):
            log.warning(
                "approved certificate request not signed",
                request=request.key.name,
                reason=examined.reason,
            )
            return Result.never()
        kept = self.objects.certificates()
        if kept is None:
            return Result.after(1.0)
        certificate = issued(manifest, kept, self.context.now())
        patch: Object = {
            "metadata": {"resourceVersion": manifest["metadata"]["resourceVersion"]},
            "status": {"certificate": base64.b64encode(certificate).decode()},
        }
        try:
            with suppress(NotFound):
                await self.client.patch(CSRS, request.key, patch, subresource="status")
        except Conflict:
            return Result.after(0.05)
        log.info("certificate signed", request=request.key.name, cluster=examined.cluster)
        return Result.never()


def is_waiting(manifest: Object | None) -> bool:
    """Whether a request to our signer is approved and has no certificate yet."""
    return (
        manifest is not None
        and manifest["spec"].get("signerName") == GRPC_SIGNER
        and concluded(manifest) == "Approved"
        and not part(manifest, "status").get("certificate")
    )


CONTROLLER = HubController("grpcsigning", GrpcSigningController, RULES)
DRIVER = HubRegistrationDriver("grpc", CONTROLLER)
