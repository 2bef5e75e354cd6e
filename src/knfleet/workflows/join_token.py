"""How clusters are invited: tokens that let them ask to join, and the command that uses them."""

import base64
import secrets
import string
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.core import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Object
from knfleet.api.operator import BOOTSTRAP_ACCOUNT, BOOTSTRAPPERS, OPERATOR_NAMESPACE
from knfleet.api.rbac_rules import RBAC_GROUP
from knfleet.apply.manifest_fields import part
from knfleet.install.hub_manifests import named
from knfleet.kube.auth.credentials import Credential, StaticCredential
from knfleet.kube.auth.x509 import authorities, fingerprint
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection, Endpoint
from knfleet.kube.errors import NotFound
from knfleet.kube.yaml import dump_all

TOKEN_SECONDS = 3600
TOKEN_ID = "ocmhub"  # noqa: S105  a name
TOKEN_SECRET = f"bootstrap-token-{TOKEN_ID}"
INFO = "cluster-info"
PUBLIC = "kube-public"
PLACEHOLDER = "<cluster_name>"
ROOT_CA = "kube-root-ca.crt"


class HubNotInstalled(Exception):
    """The cluster is not a hub."""


class JoinToken(Struct, frozen=True):
    """What a cluster needs in order to ask to join; never printed by accident."""

    server: str
    token: str
    ca_hash: str = ""

    def command(self) -> str:
        """What to type for a cluster that is to join."""
        pin = f" --hub-ca-hash {self.ca_hash}" if self.ca_hash else ""
        return (
            f"knfleet join --hub-token {self.token} --hub-apiserver {self.server} --wait"
            f" --cluster-name {PLACEHOLDER}{pin}"
        )

    def connection(self, hub: Connection) -> Connection:
        """The hub as one reaches it who was invited."""
        return replace(hub, credentials=StaticCredential(Credential(token=self.token)))

    def fields(self) -> dict[str, str]:
        """The command for programs."""
        return {
            "hub-token": self.token,
            "hub-apiserver": self.server,
            "hub-ca-hash": self.ca_hash,
            "join-command": self.command(),
        }

    def __repr__(self) -> str:
        return f"JoinToken({self.server!r})"


async def invite(hub: Client, endpoint: Endpoint, *, by_bootstrap_token: bool = False) -> JoinToken:
    """A new invitation; raises `HubNotInstalled` where there is no hub.

    A hub that we reach by what this machine trusts has no pin: its cluster's CA is not the one
    that its address shows.
    """
    ca = await public_ca(hub) if endpoint.insecure else endpoint.ca
    token = await (bootstrap_token(hub) if by_bootstrap_token else account_token(hub))
    return JoinToken(endpoint.server, token, ca_hash(ca) if ca else "")


async def account_token(hub: Client) -> str:
    """A token of the account that may ask to join; it lasts an hour."""
    body: Object = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    try:
        answer = await hub.create(
            SERVICE_ACCOUNTS, body, OPERATOR_NAMESPACE, name=BOOTSTRAP_ACCOUNT, subresource="token"
        )
    except NotFound as error:
        raise HubNotInstalled(
            f"{hub.cluster} is not a hub; run `knfleet init` there first"
        ) from error
    return answer["status"]["token"]


async def bootstrap_token(hub: Client) -> str:
    """A bootstrap token as kubeadm makes them: the one that is there while it lasts, else a new."""
    now = datetime.now(UTC)
    found = await hub.list(SECRETS, "kube-system", fields=f"metadata.name={TOKEN_SECRET}")
    for each in found.items:
        if (text := lasting(each, now)) is not None:
            return text
    letters = string.ascii_lowercase + string.digits
    text = "".join(secrets.choice(letters) for _ in range(16))
    await hub.apply(SECRETS, token_secret(text, now + timedelta(seconds=TOKEN_SECONDS)))
    return f"{TOKEN_ID}.{text}"


def lasting(secret: Object, now: datetime) -> str | None:
    """The token in a Secret, if it lasts for a while."""
    data = {name: base64.b64decode(text).decode() for name, text in part(secret, "data").items()}
    ends = datetime.fromisoformat(data["expiration"]) if data.get("expiration") else None
    if ends is not None and ends < now + timedelta(minutes=10):
        return None
    return f"{data['token-id']}.{data['token-secret']}" if "token-secret" in data else None


def token_secret(text: str, ends: datetime) -> Object:
    """The Secret that makes a bootstrap token."""
    data = {
        "token-id": TOKEN_ID,
        "token-secret": text,
        "expiration": timestamp(ends),
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": BOOTSTRAPPERS,
    }
    made = named("v1", "Secret", TOKEN_SECRET, "kube-system")
    made["metadata"]["labels"] = {"app": "cluster-manager"}
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}
    return {**made, "type": "bootstrap.kubernetes.io/token", "data": encoded}


async def public_ca(hub: Client) -> bytes | None:
    """The hub's CA, as it publishes it."""
    try:
        found = await hub.get(CONFIG_MAPS, ROOT_CA, PUBLIC)
    except NotFound:
        return None
    return authorities(str(part(found, "data").get("ca.crt", "")).encode()) or None


def ca_hash(ca: bytes) -> str:
    """What pins the authorities of a bundle, separated by commas."""
    pins = [fingerprint(each.public_key()) for each in certificates_in(ca)]
    return ",".join(dict.fromkeys(pins))


def pinned(ca: bytes, pins: str) -> bytes:
    """The authorities of a bundle that are pinned, each by its own key; no others."""
    wanted = {each.strip().lower() for each in pins.split(",")}
    fitting = [each for each in certificates_in(ca) if fingerprint(each.public_key()) in wanted]
    return b"".join(each.public_bytes(Encoding.PEM) for each in fitting)


def certificates_in(ca: bytes) -> list[x509.Certificate]:
    """The certificates of a bundle; none when one of them cannot be read."""
    try:
        return x509.load_pem_x509_certificates(authorities(ca))
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        return []


def info_objects(endpoint: Endpoint) -> list[Object]:
    """What tells clients where the hub is and whom to trust; it holds no secret."""
    cluster: Object = {"server": endpoint.server}
    if endpoint.ca:
        cluster["certificate-authority-data"] = base64.b64encode(endpoint.ca).decode()
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "", "cluster": cluster}],
        "contexts": [],
        "users": [],
    }
    name = "knfleet:cluster-info"
    reading = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [INFO],
        "verbs": ["get"],
    }
    everybody = [
        {"apiGroup": RBAC_GROUP, "kind": "Group", "name": group}
        for group in ("system:unauthenticated", "system:authenticated")
    ]
    return [
        {
            **named("v1", "ConfigMap", INFO, PUBLIC),
            "data": {"kubeconfig": dump_all([config])},
        },
        {**named(f"{RBAC_GROUP}/v1", "Role", name, PUBLIC), "rules": [reading]},
        {
            **named(f"{RBAC_GROUP}/v1", "RoleBinding", name, PUBLIC),
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": name},
            "subjects": everybody,
        },
    ]
