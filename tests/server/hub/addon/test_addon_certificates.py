"""Certificates of add-ons' agents on a real API server: who gets which, and who gets none."""

import base64
import warnings
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from structlog.testing import capture_logs

from knfleet.agent.registration.drivers.csr import attribute
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.addon.names import ADDON_LABEL, KUBE_CLIENT_SIGNER, addon_groups, addon_user
from knfleet.api.certificate_requests import CSRS
from knfleet.api.core import ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from knfleet.api.meta import Key, Object
from knfleet.api.operator import CLUSTER_MANAGER, HUB_NAMESPACE
from knfleet.api.rbac_rules import RBAC_GROUP, rule
from knfleet.hub.registration.drivers.csr import concluded
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import Forbidden
from testbed import hubs
from testbed.waiting import until
from tests.support import addons
from tests.support.addon_authority import authority, permit_authority, secret
from tests.support.registration import Agent, csr

SIGNER = "example.com/custom"
CUSTOM = {"user": "custom-user", "groups": ["custom-group"], "organizationUnit": ["unit"]}
KEY = Key("cert1", "issued")
USER = addon_user("cert1", "issued", "issued-agent")
GROUPS = addon_groups("cert1", "issued")
OWN_NAME = "issued.addon.open-cluster-management.io"


def pem(name: str, groups: Sequence[str], *names: str, units: Sequence[str] = ()) -> bytes:
    """A PKCS #10 request."""
    attributes = [
        *(attribute(NameOID.ORGANIZATION_NAME, each) for each in groups),
        *(attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, each) for each in units),
        attribute(NameOID.COMMON_NAME, name),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    if names:
        wanted = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
        builder = builder.add_extension(wanted, critical=False)
    key = ec.generate_private_key(ec.SECP256R1())
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def request(body: bytes, cluster: str = "cert1", addon: str = "issued", **spec: Any) -> Object:
    """A request of an add-on's agent."""
    made = csr(cluster, body, **spec)
    made["metadata"]["labels"][ADDON_LABEL] = addon
    made["metadata"]["generateName"] = f"addon-{cluster}-{addon}-"
    return made


@pytest.fixture
async def installed(
    fleet: Client, fleet_connection: Connection, bootstrap: Connection
) -> AsyncIterator[dict[str, Client]]:
    """Clients of agents by cluster, and of a stranger; `issued` is installed on the first of them.

    The name of the first cluster is a prefix of the second's.
    """
    registration: list[Object] = [
        {"type": "KubeClient", "kubeClient": {}},
        {
            "type": "CustomSigner",
            "customSigner": {
                "signerName": SIGNER,
                "subject": CUSTOM,
                "signingCA": {"name": "custom-ca"},
            },
        },
    ]
    async with hubs.running(fleet_connection):
        agents = [Agent(bootstrap, name) for name in ("cert1", "cert10")]
        connections = {each.cluster: await each.join(fleet) for each in agents}
        for name in ("issued", "sibling"):
            written = registration if name == "issued" else registration[:1]
            made = addons.template(name, addons.config_map("a"), registration=written)
            await fleet.create(ADDON_TEMPLATES, made)
            await fleet.create(CLUSTER_ADDONS, addons.cluster_addon(name))
        for cluster, name in (("cert1", "issued"), ("cert1", "sibling"), ("cert10", "issued")):
            await fleet.create(ADDONS, addons.addon(name, cluster), cluster)
            await addons.is_said(fleet, Key(cluster, name), "RegistrationApplied", "True")
        async with (
            Client(connections["cert1"]) as one,
            Client(connections["cert10"]) as other,
            Client(bootstrap) as stranger,
        ):
            yield {"cert1": one, "cert10": other, "stranger": stranger}


REFUSED: dict[str, tuple[str, Object, str]] = {
    "of a stranger": ("stranger", request(pem(USER, GROUPS)), "is not an agent of cluster cert1"),
    "of a cluster whose name begins alike": (
        "cert10",
        request(pem(USER, GROUPS)),
        "is not an agent of cluster cert1",
    ),
    "for a cluster that does not have it": (
        "cert10",
        request(pem(USER, GROUPS), addon="sibling", cluster="cert10"),
        "add-on cert10/sibling is not one that the hub delivers",
    ),
    "with the user of another cluster": (
        "cert1",
        request(pem(addon_user("cert10", "issued", "issued-agent"), GROUPS)),
        "its common name is",
    ),
    "with the user of another add-on": (
        "cert1",
        request(pem(addon_user("cert1", "sibling", "sibling-agent"), GROUPS)),
        "its common name is",
    ),
    "with the groups of another add-on": (
        "cert1",
        request(pem(USER, addon_groups("cert1", "sibling"))),
        "its organisations are not",
    ),
    "with the groups of another cluster": (
        "cert1",
        request(pem(USER, addon_groups("cert10", "issued"))),
        "its organisations are not",
    ),
    "with more groups": (
        "cert1",
        request(pem(USER, [*GROUPS, "system:open-cluster-management:managed-clusters"])),
        "its organisations are not",
    ),
    "with fewer groups": ("cert1", request(pem(USER, GROUPS[:1])), "its organisations are not"),
    "with organizational units": (
        "cert1",
        request(pem(USER, GROUPS, units=["u"])),
        "organizational units",
    ),
    "with more names": (
        "cert1",
        request(pem(USER, GROUPS, OWN_NAME, "kubernetes.default.svc")),
        "it asks for the names",
    ),
    "with the user of the cluster's agent": (
        "cert1",
        request(pem("system:open-cluster-management:cert1:a1", GROUPS)),
        "its common name is",
    ),
    "with another custom subject": (
        "cert1",
        request(pem("other-user", ["custom-group"], units=["unit"]), signerName=SIGNER),
        "its common name is other-user, not custom-user",
    ),
    "with other custom groups": (
        "cert1",
        request(pem("custom-user", ["system:masters"], units=["unit"]), signerName=SIGNER),
        "its organisations are not custom-group",
    ),
    "to a signer that is not registered": (
        "cert1",
        request(pem(USER, GROUPS), signerName="example.com/other"),
        "no registration with signer example.com/other",
    ),
    "to a custom signer by a stranger": (
        "stranger",
        request(pem("custom-user", ["custom-group"], units=["unit"]), signerName=SIGNER),
        "is not an agent of cluster cert1",
    ),
}


async def test_requests_are_approved_only_for_the_identity_of_the_agent_that_asks(
    fleet: Client, installed: dict[str, Client]
):
    """Each of the others is left pending, and the log says why; signers do not mix."""
    with capture_logs() as logs:
        made = {
            name: (await installed[who].create(CSRS, manifest))["metadata"]["name"]
            for name, (who, manifest, _) in REFUSED.items()
        }
        good = await installed["cert1"].create(CSRS, request(pem(USER, GROUPS, OWN_NAME)))

        def reasons() -> dict[str, str]:
            return {each["request"]: each["reason"] for each in logs if "request" in each}

        async def all_decided() -> bool:
            return set(made.values()) <= set(reasons())

        await until(all_decided, "the hub has decided on all requests")
        await until(lambda: is_issued(fleet, good), "the agent's own request is issued")

    for name, (_, _, words) in REFUSED.items():
        assert words in reasons()[made[name]], name
        assert concluded(await fleet.get(CSRS, made[name])) == "", name
    with pytest.raises(Forbidden, match="system:masters"):
        await installed["cert1"].create(CSRS, request(pem(USER, [*GROUPS, "system:masters"])))

    await signed_by_the_custom_authority(fleet, installed["cert1"])
    await forged_status(fleet, installed["cert1"])


async def is_issued(fleet: Client, made: Object) -> bool:
    """Whether a request has its certificate."""
    found = await fleet.get(CSRS, made["metadata"]["name"])
    return bool(found.get("status", {}).get("certificate"))


async def signed_by_the_custom_authority(fleet: Client, agent: Client) -> None:
    """A custom signer's CA is read when there is one, and signs for clients for a day."""
    contents = authority()
    await fleet.create(SECRETS, secret("custom-ca", contents), HUB_NAMESPACE)
    await permit_authority(fleet, "custom-ca")
    wanted = request(pem("custom-user", ["custom-group"], units=["unit"]), signerName=SIGNER)
    made = await agent.create(CSRS, wanted)
    await until(lambda: is_issued(fleet, made), "the custom request is issued")
    found = await fleet.get(CSRS, made["metadata"]["name"])
    certificate = x509.load_pem_x509_certificate(base64.b64decode(found["status"]["certificate"]))
    ca = x509.load_pem_x509_certificate(contents["tls.crt"])
    certificate.verify_directly_issued_by(ca)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert timedelta(hours=23) < life < timedelta(hours=25)


async def forged_status(fleet: Client, agent: Client) -> None:
    """What the agent itself writes into the status of the add-on gives it nothing."""
    forged: Object = {
        "registrations": [
            {"signerName": KUBE_CLIENT_SIGNER, "subject": {"user": "system:admin"}},
            {"signerName": SIGNER, "subject": {"user": "system:admin", "groups": ["any"]}},
        ]
    }
    with capture_logs() as logs:
        await agent.patch(ADDONS, KEY, {"status": forged}, subresource="status")
        wanted = request(pem("system:admin", ["any"]), signerName=SIGNER)
        made = await agent.create(CSRS, wanted)
        name = made["metadata"]["name"]

        async def is_decided() -> bool:
            return any(each.get("request") == name for each in logs)

        await until(is_decided, "the hub has decided on the request")
    assert concluded(await fleet.get(CSRS, name)) == ""


async def test_the_hubs_account_signs_and_grants_no_more_than_add_ons_need(
    fleet_connection: Connection, bootstrap: Connection
):
    """Whatever its roles let it: the rules for its account say no."""
    group: Object = {"apiGroup": RBAC_GROUP, "kind": "Group", "name": "others"}
    hub_role = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "knfleet:hub"}

    def role(name: str, *rules: Object) -> Object:
        meta = {"name": name, "namespace": "default"}
        kind = {"apiVersion": ROLES.api_version, "kind": ROLES.kind}
        return {**kind, "metadata": meta, "rules": list(rules)}

    binding: Object = {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": "given-away", "namespace": "default"},
        "roleRef": hub_role,
        "subjects": [group],
    }
    token = rule("", ["serviceaccounts/token"], ["create"], ["default"])
    async with Client(bootstrap) as asking:
        made = await asking.create(CSRS, request(pem(USER, GROUPS)))
    name = Key("", made["metadata"]["name"])
    issued = {"status": {"certificate": base64.b64encode(authority()["tls.crt"]).decode()}}
    async with Client(await hubs.as_account(fleet_connection, CLUSTER_MANAGER)) as hub:
        attempts = {
            "knfleet-hub-bindings": lambda: hub.create(ROLE_BINDINGS, binding, dry_run=True),
            "knfleet-hub-roles": lambda: hub.create(
                ROLES,
                role("approvers", rule("certificates.k8s.io", ["signers"], ["approve"])),
                dry_run=True,
            ),
            "in the namespace of their cluster": lambda: hub.create(
                ROLES, role("tokens", token), dry_run=True
            ),
            "knfleet-hub-accounts": lambda: hub.delete(
                SERVICE_ACCOUNTS, Key("default", "default"), dry_run=True
            ),
            "knfleet-hub-account-tokens": lambda: hub.create(
                SERVICE_ACCOUNTS,
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
                "default",
                name="default",
                subresource="token",
                dry_run=True,
            ),
            "knfleet-hub-signatures": lambda: hub.patch(
                CSRS, name, issued, subresource="status", dry_run=True
            ),
        }
        for policy, attempt in attempts.items():

            async def is_denied(policy: str = policy, attempt: Any = attempt) -> bool:
                try:
                    await attempt()
                except Forbidden as error:
                    return policy in str(error)
                return False

            await until(is_denied, f"{policy} denies")
