"""The CA of a custom signer: made, kept in a Secret of the hub, and permitted to the hub."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from knfleet.api.core import ROLE_BINDINGS, ROLES
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGER, HUB_NAMESPACE, OPERATOR_NAMESPACE
from knfleet.api.rbac_rules import RBAC_GROUP, rule
from knfleet.kube.client.verbs import Client


def authority() -> dict[str, bytes]:
    """A CA, as its Secret holds it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "custom-ca")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return {
        "tls.crt": made.public_bytes(serialization.Encoding.PEM),
        "tls.key": key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    }


def secret(name: str, contents: Mapping[str, bytes]) -> Object:
    """A Secret."""
    data = {key: base64.b64encode(value).decode() for key, value in contents.items()}
    meta = {"name": name, "namespace": HUB_NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}


async def permit_authority(fleet: Client, name: str) -> None:
    """Let the hub read the Secret of a CA."""
    meta = {"name": f"read-{name}", "namespace": HUB_NAMESPACE}
    role: Object = {"apiVersion": ROLES.api_version, "kind": ROLES.kind, "metadata": meta}
    await fleet.apply(ROLES, {**role, "rules": [rule("", ["secrets"], ["get"], [name])]})
    subject = {"kind": "ServiceAccount", "name": CLUSTER_MANAGER, "namespace": OPERATOR_NAMESPACE}
    reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": meta["name"]}
    binding: Object = {"apiVersion": ROLE_BINDINGS.api_version, "kind": ROLE_BINDINGS.kind}
    await fleet.apply(
        ROLE_BINDINGS,
        {**binding, "metadata": meta, "roleRef": reference, "subjects": [subject]},
    )
