"""The controller of certificate requests of add-ons' agents: approves, and signs for custom CAs."""

import base64
import warnings
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from knfleet.api.addon.addon_configuration import ConfigType
from knfleet.api.addon.addontemplate import CustomSignerRegistration, Registration
from knfleet.api.addon.clustermanagementaddon import ClusterManagementAddOn
from knfleet.api.addon.managedclusteraddon import ManagedClusterAddOn
from knfleet.api.addon.names import ADDON_LABEL, KUBE_CLIENT_SIGNER
from knfleet.api.certificate_requests import CSRS
from knfleet.api.core import SECRETS
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.operator import HUB_NAMESPACE
from knfleet.hub.addon.addon_informers import addon_informers, labels_of
from knfleet.hub.addon.delivery.agent_delivery import desired_references, referent
from knfleet.hub.addon.registration.agent_rights import registrations
from knfleet.hub.addon.registration.certificate_rules import (
    APPROVED,
    AddOnRequest,
    CertificateVerdict,
    decide,
    examine,
    is_addon_request,
)
from knfleet.hub.addon.resolution import TEMPLATE
from knfleet.hub.context import HubContext
from knfleet.hub.hub_controller import Watch
from knfleet.hub.registration.drivers.csr import approve, concluded
from knfleet.hub.registration.drivers.csr_rules import RequestProblem, parsed
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.errors import Conflict, Forbidden, NotFound
from knfleet.runtime.controller import Result

log = structlog.get_logger()

AGAIN_SECONDS = 30.0
LIFE = timedelta(hours=24)
BACKDATED = timedelta(minutes=5)


class SigningError(ValueError):
    """A CA that cannot sign; the message names the Secret."""


class AddOnCertificateController:
    """Decides on certificate requests of add-ons' agents."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.informers = addon_informers(context)
        self.logged: dict[str, str] = {}

    def watches(self) -> Sequence[Watch]:
        """Certificate requests, and the add-ons that they are for."""
        return [
            Watch(self.context.informers.requests.on_change, self.by_request),
            Watch(self.informers.addons.on_change, self.by_addon),
        ]

    def by_request(self, change: StoreChange) -> Iterable[Request]:
        """A certificate request changed."""
        manifest = change.new or change.old
        if manifest is not None and is_addon_request(manifest):
            yield Request(HUB, change.key)

    def by_addon(self, change: StoreChange) -> Iterable[Request]:
        """What an add-on's agent may ask for changed."""
        if registrations_of(change.old) == registrations_of(change.new):
            return
        for manifest in self.context.informers.requests.by_index("cluster", change.key.namespace):
            if labels_of(manifest).get(ADDON_LABEL) == change.key.name:
                yield Request(HUB, Key.of(manifest))

    async def reconcile(self, request: Request) -> Result:
        """Decide on one request."""
        manifest = self.context.informers.requests.get(request.key)
        if manifest is None or not is_addon_request(manifest):
            self.logged.pop(request.key.name, None)
            return Result.never()
        examined = examine(manifest)
        if isinstance(examined, RequestProblem):
            self.log_once(manifest, examined.reason)
            return Result.never()
        addon = self.informers.addon(examined.key)
        verdict = self.verdict(examined, addon)
        if verdict.action == "wait" or addon is None:
            self.log_once(manifest, verdict.message)
            return Result.never()
        try:
            return await self.act(manifest, addon, examined.signer, verdict.message)
        except Conflict:
            return Result.after(0.05)

    def verdict(
        self, examined: AddOnRequest, addon: ManagedClusterAddOn | None
    ) -> CertificateVerdict:
        """What to do about a request; those of other managers' add-ons are left to them."""
        cluster_addon = self.informers.cluster_addon(examined.addon)
        if addon is None or cluster_addon is None or not is_delivered(cluster_addon):
            return CertificateVerdict(
                "wait", f"add-on {examined.key} is not one that the hub delivers"
            )
        registered = registrations(addon, self.written(addon))
        return decide(examined, self.context.informers.cluster(examined.cluster), addon, registered)

    async def act(
        self, manifest: Object, addon: ManagedClusterAddOn, signer: str, message: str
    ) -> Result:
        """Approve a request; one that is approved is signed, if that is for the hub to do."""
        status: Object = manifest.get("status") or {}
        if not concluded(manifest):
            await approve(self.client, manifest, reason=APPROVED, message=message)
            return Result.never()
        is_signed = signer == KUBE_CLIENT_SIGNER or bool(status.get("certificate"))
        if is_signed or not is_approved(manifest):
            return Result.never()
        return await self.sign(manifest, addon, signer)

    async def sign(self, manifest: Object, addon: ManagedClusterAddOn, signer: str) -> Result:
        """Sign an approved request with the CA that the template names."""
        registration = self.registration(addon, signer)
        if registration is None:
            self.log_once(manifest, f"the template of add-on {addon.key} has no signer {signer}")
            return Result.never()
        authority = registration.signing_ca
        key = Key(authority.namespace or HUB_NAMESPACE, authority.name)
        try:
            secret = await self.client.get(SECRETS, key.name, key.namespace)
            certificate = signed(manifest, secret, self.context.now())
        except (NotFound, Forbidden) as error:
            self.log_once(
                manifest,
                f"Secret {key} with the CA of signer {signer} cannot be read: {error.message};"
                " create it with tls.crt and tls.key, and permit the hub's account to get it",
            )
            return Result.after(AGAIN_SECONDS)
        except SigningError as error:
            self.log_once(manifest, f"Secret {key}: {error}")
            return Result.after(AGAIN_SECONDS)
        patch = {"status": {"certificate": base64.b64encode(certificate).decode()}}
        await self.client.patch(CSRS, Key.of(manifest), patch, subresource="status")
        return Result.never()

    def registration(
        self, addon: ManagedClusterAddOn, signer: str
    ) -> CustomSignerRegistration | None:
        """What the template of an add-on says about a signer."""
        written = (each.custom_signer for each in self.written(addon))
        return next((each for each in written if each and each.signer_name == signer), None)

    def written(self, addon: ManagedClusterAddOn) -> Sequence[Registration]:
        """What the template of an add-on gives its agents; nothing when it is another's."""
        references = desired_references(addon, TEMPLATE)
        template = self.informers.template(referent(references[-1]).name) if references else None
        if template is None or template.spec.addon_name != addon.name:
            return []
        return template.spec.registration

    def log_once(self, manifest: Object, reason: str) -> None:
        """Say in the log why a request is left alone, once for each reason."""
        name = manifest["metadata"]["name"]
        if self.logged.get(name) != reason:
            self.logged[name] = reason
            log.info("certificate request of an add-on left pending", request=name, reason=reason)


def is_delivered(cluster_addon: ClusterManagementAddOn) -> bool:
    """Whether the hub itself delivers an add-on, by what administrators say alone."""
    return any(
        ConfigType(group=each.group, resource=each.resource) == TEMPLATE
        for each in cluster_addon.spec.supported_configs
    )


def registrations_of(addon: Object | None) -> object:
    """What the status of an add-on says about certificates; None when there is no add-on."""
    if addon is None:
        return None
    status: Object = addon.get("status") or {}
    return status.get("registrations") or []


def is_approved(manifest: Object) -> bool:
    """Whether a request is approved, and not denied."""
    status: Object = manifest.get("status") or {}
    conditions: list[Object] = status.get("conditions") or []
    types = {each["type"] for each in conditions}
    return "Approved" in types and not {"Denied", "Failed"} & types


def signed(manifest: Object, secret: Object, now: datetime) -> bytes:
    """The certificate for a request, as PEM; raises `SigningError`."""
    data: dict[str, str] = secret.get("data") or {}
    request = parsed(manifest["spec"]["request"])
    try:
        ca = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
        key = serialization.load_pem_private_key(base64.b64decode(data["tls.key"]), password=None)
    except (KeyError, ValueError, TypeError) as error:
        raise SigningError("it has no CA certificate tls.crt and key tls.key as PEM") from error
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) or request is None:
        raise SigningError("its key is neither an RSA nor an elliptic curve key")
    if key.public_key() != ca.public_key():
        raise SigningError("tls.key does not belong to tls.crt")
    if not ca.not_valid_before_utc <= now < ca.not_valid_after_utc:
        raise SigningError(f"its certificate is valid until {ca.not_valid_after_utc:%Y-%m-%d}")
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    with warnings.catch_warnings():
        # Common names of agents may be longer than X.509 wants them to be.
        warnings.simplefilter("ignore")
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(ca.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(now - BACKDATED, ca.not_valid_before_utc))
            .not_valid_after(min(now + LIFE, ca.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        for each in request.extensions:
            # Only the add-on's own DNS name: the rules let nothing else through.
            builder = builder.add_extension(each.value, critical=False)
        certificate = builder.sign(key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM)
