"""The least rights with which Knative can be installed on a spoke, made from its own objects.

Kubernetes lets one grant only what one has. Knative's ClusterRoles have wide rights, so that an
administrator makes them beforehand; those that Knative binds may be bound, by name. Of its Roles,
which hold in its own namespaces alone, the rights are held. Nothing needs the right to `escalate`,
unless the account writes the ClusterRoles itself.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.core import BUILT_IN, CLUSTER_ROLES, EVENTS, NAMESPACES, PODS, REPLICA_SETS
from knfleet.api.meta import Object, Resource, api_group
from knfleet.apply.desired import Kinds, defined_kinds, kind_of, ref_in
from knfleet.apply.manifest_fields import part
from knfleet.apply.plan.provided_roles import joined_roles, provided_role
from knfleet.apply.refs import CLUSTER_ROLE, Ref
from knfleet.apply.rights import (
    OBJECT_VERBS,
    RBAC_GROUP,
    ROLE_KINDS,
    Right,
    collection_rights,
    distinct,
    granted,
    home_rights,
    object_rights,
    rules_of,
)
from knfleet.clusters.preflight import KUBE_SYSTEM
from knfleet.operator.rights import INSTALLED

DETAILS = (EVENTS, PODS, REPLICA_SETS)
"""What `knfleet status` and the dashboard read of workloads that are not ready."""


class UnknownKind(Exception):
    """A manifest is of a kind whose plural is not known without a cluster."""


class SpokeRights(Struct, frozen=True):
    """What an account on a spoke must be allowed to do."""

    rights: frozenset[Right]
    namespaces: tuple[str, ...]
    """The namespaces of installations, which must be there before."""
    provided: dict[str, Object]
    """The ClusterRoles, by name, that an administrator makes."""

    @property
    def cluster_rules(self) -> list[Object]:
        """The rules of the ClusterRole."""
        return rules_of(each for each in self.rights if not each.namespace)

    @property
    def namespace_rules(self) -> dict[str, list[Object]]:
        """The rules of the Roles, by namespace."""
        places = sorted({each.namespace for each in self.rights} - {""})
        return {
            place: rules_of(each for each in self.rights if each.namespace == place)
            for place in places
        }

    @property
    def bound(self) -> list[str]:
        """The roles that may be bound beyond what is held."""
        return sorted({each.name for each in self.rights if each.verb == "bind"})

    @property
    def escalated(self) -> list[str]:
        """The roles that may be given rights beyond what is held."""
        return sorted({each.name for each in self.rights if each.verb == "escalate"})

    @property
    def rule_count(self) -> int:
        """How many rules there are in all roles."""
        return len(self.cluster_rules) + sum(map(len, self.namespace_rules.values()))

    def joined(self, other: Self) -> Self:
        """What two installations take together."""
        namespaces = dict.fromkeys((*self.namespaces, *other.namespaces))
        rights = distinct(self.rights | other.rights)
        provided = {
            **other.provided,
            **{
                name: joined_roles(role, other.provided[name]) if name in other.provided else role
                for name, role in self.provided.items()
            },
        }
        return type(self)(frozenset(rights), tuple(sorted(namespaces)), provided)

    def anywhere(self) -> Self:
        """The same without Roles in namespaces of others, which may not be there."""
        widened = {
            each if each.namespace in ("", *self.namespaces) else replace(each, namespace="")
            for each in self.rights
        }
        return replace(self, rights=frozenset(distinct(widened)))

    def with_own_roles(self) -> Self:
        """The same for an account that writes the ClusterRoles itself: nothing is provided.

        Their rights are not held, so that it takes the right to escalate them, by name.
        """
        written = {
            Right(RBAC_GROUP, CLUSTER_ROLES.plural, verb, "", name)
            for name in self.provided
            for verb in (*OBJECT_VERBS, "escalate")
        }
        return type(self)(frozenset(distinct(self.rights | written)), self.namespaces, {})


NONE = SpokeRights(frozenset(), (), {})


def spoke_rights(objects: Iterable[Object], home: str) -> SpokeRights:
    """The least rights for one set of rendered objects in the namespace of its custom resource."""
    every = list(objects)
    kinds = kinds_of(every)
    places: defaultdict[Resource, set[str]] = defaultdict(set)
    provided: dict[str, Object] = {}
    needed: set[Right] = {
        Right(NAMESPACES.group, NAMESPACES.plural, "get", "", KUBE_SYSTEM),
        *(
            Right(each.group, each.plural, verb, home)
            for each in DETAILS
            for verb in ("get", "list")
        ),
        *home_rights(home),
    }
    for manifest in every:
        resource = kinds[kind_of(manifest)]
        ref = ref_in(manifest, resource)
        places[resource].add(ref.namespace)
        if ref.group_kind == CLUSTER_ROLE:
            provided[ref.name] = provided_role(manifest)
            continue
        needed.update(object_rights(unnamed(ref, home), resource, home))
        if ref.group_kind in ROLE_KINDS:
            needed.update(granted(manifest))
    bound = provided.keys() & {part(each, "roleRef").get("name", "") for each in every}
    needed.update(Right(RBAC_GROUP, CLUSTER_ROLES.plural, "bind", "", name) for name in bound)
    for resource, namespaces in places.items():
        needed.update(collection_rights(resource, namespaces))
    return SpokeRights(frozenset(distinct(needed)), (home,), provided)


def unnamed(ref: Ref, home: str) -> Ref:
    """An object as rules name it: in the installation's own namespace all are alike.

    Who may create a Deployment there can act as all its ServiceAccounts, so that names would
    protect nothing.
    """
    return replace(ref, name="") if ref.namespace == home else ref


def kinds_of(objects: Iterable[Object]) -> Kinds:
    """How each kind is addressed, without asking a cluster; raises `UnknownKind`."""
    every = list(objects)
    found = dict(BUILT_IN | defined_kinds(every))
    for api_version, kind in {kind_of(each) for each in every} - found.keys():
        group, version = api_group(api_version)
        plural = f"{kind.lower()}s"
        if plural not in INSTALLED.get(group, ()):
            raise UnknownKind(
                f"{kind} of {api_version}: no CustomResourceDefinition among the manifests defines"
                " this kind, so that its plural is not known; add the definition to the files"
            )
        found[api_version, kind] = Resource(group, version, kind, plural)
    return found
