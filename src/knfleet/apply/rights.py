"""Rights as values: what the engine does to objects of each kind, and what roles grant.

The table here is the only place that says which verbs applying, watching, repairing, pruning and
uninstalling take. The role for a spoke is made from it, and rights are compared with it before
something is written.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product

from msgspec import Struct

from knfleet.api.core import CONFIG_MAPS, ENDPOINT_SLICES, NAMESPACES
from knfleet.api.meta import Object, Resource
from knfleet.apply.refs import CRD, NAMESPACE, GroupKind, Ref

RBAC_GROUP = "rbac.authorization.k8s.io"
ROLE_KINDS = frozenset({GroupKind(RBAC_GROUP, "ClusterRole"), GroupKind(RBAC_GROUP, "Role")})
ANY = "*"

COLLECTION_VERBS = ("list", "watch")
"""For every kind."""
OBJECT_VERBS = ("create", "delete", "get", "patch")
"""For every object, by name: server-side apply names also what it creates."""
LASTING: Mapping[GroupKind, tuple[str, ...]] = {CRD: ("create", "get", "patch")}
"""Kinds of which nothing is ever deleted."""
OWN_NAMESPACE_VERBS = ("get", "patch")
"""For the Namespace of an installation, which is there before it and stays."""


class Right(Struct, frozen=True, order=True):
    """One verb on one resource; without a name on all objects, without a namespace in all."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {kind}{name}" + (f" in {self.namespace}" if self.namespace else "")


def object_verbs(ref: Ref, home: str) -> tuple[str, ...]:
    """What is done to one object in the course of time."""
    if ref.group_kind == NAMESPACE and ref.name == home:
        return OWN_NAMESPACE_VERBS
    return LASTING.get(ref.group_kind, OBJECT_VERBS)


def object_rights(ref: Ref, resource: Resource, home: str) -> list[Right]:
    """The rights on one object."""
    return [
        Right(resource.group, resource.plural, verb, ref.namespace, ref.name)
        for verb in object_verbs(ref, home)
    ]


def collection_rights(resource: Resource, namespaces: Collection[str]) -> list[Right]:
    """The rights on the members of a kind, which are in these namespaces.

    A kind is watched in the namespace of its members; one with members in several namespaces is
    watched in all, by one connection.
    """
    place = next(iter(namespaces)) if len(namespaces) == 1 else ""
    return [Right(resource.group, resource.plural, verb, place) for verb in COLLECTION_VERBS]


def home_rights(home: str) -> list[Right]:
    """What an installation takes beside its own objects: its anchor, and who answers webhooks."""
    maps = [
        Right(CONFIG_MAPS.group, CONFIG_MAPS.plural, verb, home)
        for verb in (*COLLECTION_VERBS, *OBJECT_VERBS)
    ]
    slices = [
        Right(ENDPOINT_SLICES.group, ENDPOINT_SLICES.plural, verb, home)
        for verb in COLLECTION_VERBS
    ]
    # Clusters may ask this of the author of references that block the deletion of their owner.
    finalizers = Right(CONFIG_MAPS.group, f"{CONFIG_MAPS.plural}/finalizers", "update", home)
    namespace = Right(NAMESPACES.group, NAMESPACES.plural, "get", "", home)
    return [*maps, *slices, finalizers, namespace]


def granted(manifest: Object) -> list[Right]:
    """The rights in the rules of a Role or ClusterRole, one by one."""
    namespace = manifest["metadata"].get("namespace", "") if manifest["kind"] == "Role" else ""
    return [each for rule in manifest.get("rules") or () for each in rights_in(rule, namespace)]


def rights_in(rule: Object, namespace: str = "") -> Iterator[Right]:
    """The rights in one rule, one by one; addresses that are no resources are left out."""
    for group, resource, verb, name in product(
        rule.get("apiGroups") or (),
        rule.get("resources") or (),
        rule.get("verbs") or (),
        rule.get("resourceNames") or ("",),
    ):
        yield Right(group, resource, verb, namespace, name)


class HeldRights:
    """Rights that are held, asked whether they contain another."""

    def __init__(self, rights: Iterable[Right]) -> None:
        self.by_verb: dict[tuple[str, str, str], set[tuple[str, str]]] = defaultdict(set)
        """Namespaces and names, by group, resource and verb."""
        for each in rights:
            self.by_verb[each.group, each.resource, each.verb].add((each.namespace, each.name))

    def covers(self, right: Right) -> bool:
        """Whether a right is among them, as an API server decides it."""
        scopes = {("", ""), ("", right.name), (right.namespace, ""), (right.namespace, right.name)}
        return any(
            not scopes.isdisjoint(self.by_verb.get(each, ()))
            for each in product(
                {right.group, ANY}, covering_resources(right.resource), {right.verb, ANY}
            )
        )

    def has_any(self, right: Right) -> bool:
        """Whether a right is held on at least one object."""
        return self.covers(right) or any(
            namespace in ("", right.namespace)
            for namespace, _ in self.by_verb.get((right.group, right.resource, right.verb), ())
        )


def covering_resources(resource: str) -> set[str]:
    """How rules may name a resource: itself, any, or a part of any."""
    _, has_part, part = resource.partition("/")
    return {resource, ANY} | ({f"{ANY}/{part}"} if has_part else set())


def distinct(rights: Iterable[Right]) -> set[Right]:
    """The rights that no other one of them contains."""
    every = set(rights)
    wide = [each for each in every if ANY in (each.group, each.resource, each.verb)]
    broad = [each for each in every if not each.name or not each.namespace]
    held = HeldRights([*wide, *broad])
    return {each for each in every if not contained(each, every, held)}


def contained(right: Right, every: set[Right], held: HeldRights) -> bool:
    """Whether another right of a set contains one."""
    wider = {
        Right(group, resource, verb, namespace, name)
        for group, resource, verb in product(
            {right.group, ANY}, covering_resources(right.resource), {right.verb, ANY}
        )
        for namespace in {right.namespace, ""}
        for name in {right.name, ""}
    } - {right}
    return held.covers(right) and not every.isdisjoint(wider)


def rules_of(rights: Iterable[Right]) -> list[Object]:
    """The rules of a role that grant rights, as few as keep every name and verb exact."""
    names: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for each in rights:
        names[each.group, each.resource, each.verb].add(each.name)
    verbs: defaultdict[tuple[str, str, tuple[str, ...]], set[str]] = defaultdict(set)
    for (group, resource, verb), found in names.items():
        if "" in found:
            verbs[group, resource, ()].add(verb)
        if some := tuple(sorted(found - {""})):
            verbs[group, resource, some].add(verb)
    resources: defaultdict[tuple[str, tuple[str, ...], tuple[str, ...]], set[str]]
    resources = defaultdict(set)
    for (group, resource, some), found in verbs.items():
        resources[group, some, tuple(sorted(found))].add(resource)
    groups: defaultdict[tuple[tuple[str, ...], ...], set[str]] = defaultdict(set)
    for (group, some, found), kinds in resources.items():
        groups[tuple(sorted(kinds)), some, found].add(group)
    written = [
        {
            "apiGroups": sorted(members),
            "resources": list(kinds),
            **({"resourceNames": list(some)} if some else {}),
            "verbs": list(found),
        }
        for (kinds, some, found), members in groups.items()
    ]
    return sorted(written, key=lambda rule: (rule["apiGroups"], rule["resources"], str(rule)))
