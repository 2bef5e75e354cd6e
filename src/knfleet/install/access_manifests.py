"""What gives an account on a spoke its rights: roles, bindings, and what must be there before.

The namespaces of installations are made beforehand, so that rights on what is in them need not hold
in all namespaces; so are Knative's ClusterRoles, so that their rights need not be held. Both stay
when the account goes, for Knative may be there; namespaces of verifications go with it.
"""

from collections.abc import Iterable

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.apply.plan.provided_roles import is_provided
from knfleet.apply.rights import RBAC_GROUP, Right, granted
from knfleet.operator.spoke_access.rights import SpokeRights
from knfleet.operator.verification.verify_objects import verify_namespace
from knfleet.release.layout import COMPONENTS

ACCESS_ROLE = "knfleet:access"
RBAC_VERSION = f"{RBAC_GROUP}/v1"


class UnusableRights(Exception):
    """Manifests give no rights; the message says what to do."""


class Account(Struct, frozen=True):
    """Who gets the rights: a ServiceAccount, or without a namespace a user."""

    name: str
    namespace: str = ""

    @property
    def subject(self) -> Object:
        """The account in a binding."""
        if self.namespace:
            return {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}
        return {"kind": "User", "apiGroup": RBAC_GROUP, "name": self.name}


def access_objects(rights: SpokeRights, account: Account) -> list[Object]:
    """Everything that an administrator applies on a spoke."""
    return [
        *(made("v1", "Namespace", name) for name in rights.namespaces),
        *(rights.provided[name] for name in sorted(rights.provided)),
        {**made(RBAC_VERSION, "ClusterRole", ACCESS_ROLE), "rules": rights.cluster_rules},
        binding("ClusterRole", account),
        *(
            each
            for namespace, rules in rights.namespace_rules.items()
            for each in (
                {**made(RBAC_VERSION, "Role", ACCESS_ROLE, namespace), "rules": rules},
                binding("Role", account, namespace),
            )
        ),
    ]


def made(api_version: str, kind: str, name: str, namespace: str = "") -> Object:
    """An object with nothing but a name."""
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def binding(kind: str, account: Account, namespace: str = "") -> Object:
    """Gives an account the role."""
    return {
        **made(RBAC_VERSION, f"{kind}Binding", ACCESS_ROLE, namespace),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": ACCESS_ROLE},
        "subjects": [account.subject],
    }


def rights_in_manifests(manifests: Iterable[Object]) -> SpokeRights:
    """The rights that printed manifests give; raises `UnusableRights`."""
    rights: set[Right] = set()
    namespaces: list[str] = []
    provided: dict[str, Object] = {}
    for each in manifests:
        kind, name = each.get("kind", ""), each["metadata"]["name"]
        if kind == "Namespace":
            namespaces.append(name)
        elif is_provided(each):
            provided[name] = each
        elif kind in ("ClusterRole", "Role") and name == ACCESS_ROLE:
            rights.update(granted(each))
    if not rights:
        raise UnusableRights(
            f"has no ClusterRole {ACCESS_ROLE}; make the file by `knfleet rights --release …`"
        )
    return SpokeRights(frozenset(rights), tuple(sorted(namespaces)), provided)


def removable(objects: Iterable[Object], rights: SpokeRights) -> list[Object]:
    """Of some objects, those that go with the account.

    Namespaces of installations stay; those of verifications have nothing else in them.
    """
    kept = {*rights.namespaces} - {verify_namespace(each) for each in COMPONENTS}
    return [
        each
        for each in objects
        if not (each["kind"] == "Namespace" and each["metadata"]["name"] in kept)
        and not is_provided(each)
    ]
