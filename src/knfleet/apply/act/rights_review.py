"""Compares the rights of our credentials with those that a set needs, before anything is written.

One SelfSubjectRulesReview for each namespace tells what is allowed. What it does not tell is asked
for one by one, since a server may keep some of its answer to itself; a question that is not
answered counts as a yes, so that nothing is claimed that the server did not say.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from knfleet.api.meta import Object, Resource
from knfleet.apply.act.missing_rights import ACCESS_REVIEWS
from knfleet.apply.change_set import FailureKind, MissingRight, ObjectFailure
from knfleet.apply.desired import Desired
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.plan.steps import ApplyStep
from knfleet.apply.refs import Ref
from knfleet.apply.rights import (
    RBAC_GROUP,
    ROLE_KINDS,
    HeldRights,
    Right,
    collection_rights,
    granted,
    object_rights,
    rights_in,
)
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import KubeError

RULES_REVIEWS = Resource(
    ACCESS_REVIEWS.group,
    "v1",
    "SelfSubjectRulesReview",
    "selfsubjectrulesreviews",
    namespaced=False,
)
NOWHERE = "knfleet-nowhere"
"""A namespace that does not exist: what is allowed there is allowed everywhere."""
MOST_NAMED = 6


async def review(
    client: Client, desired: Iterable[Desired], steps: Iterable[ApplyStep], home: str
) -> list[ObjectFailure]:
    """What cannot be done for want of rights: kinds that are applied, and objects to be written."""
    writes = list(steps)
    places: defaultdict[Resource, set[str]] = defaultdict(set)
    first: dict[Resource, Ref] = {}
    for each in desired:
        places[each.resource].add(each.ref.namespace)
        first.setdefault(each.resource, each.ref)
    namespaces = {place for some in places.values() for place in some} - {""} | {home}
    held = await held_rights(client, namespaces)
    if held is None:
        return []
    wanted: defaultdict[Right, list[Ref]] = defaultdict(list)
    for resource, some in places.items():
        for right in collection_rights(resource, some):
            wanted[right].append(first[resource])
    for step in writes:
        ref = step.desired.ref
        for right in object_rights(ref, step.desired.resource, home):
            wanted[right].append(ref)
    doubtful = [right for right in wanted if not held.covers(right)]
    denied = await denials(client, doubtful)
    return [
        *(
            ObjectFailure(ref, FailureKind.FORBIDDEN, f"{right} is not allowed", right.verb,
                          (missing(right),))
            for right in denied
            for ref in wanted[right]
        ),
        *await ungrantable(client, writes, held),
        *await unbindable(client, writes, held),
    ]  # fmt: skip


async def held_rights(client: Client, namespaces: Iterable[str]) -> HeldRights | None:
    """What is allowed on the cluster and in namespaces; None when the server does not tell."""
    wanted = ["", *sorted(namespaces)]
    reviews = await asyncio.gather(*(rules_in(client, each or NOWHERE) for each in wanted))
    rights: set[Right] = set()
    for namespace, rules in zip(wanted, reviews, strict=True):
        if rules is None:
            return None
        rights.update(right for rule in rules for right in rights_in(rule, namespace))
    return HeldRights(rights)


async def rules_in(client: Client, namespace: str) -> list[Object] | None:
    """The rules that hold for us in a namespace."""
    asked: Object = {
        "apiVersion": RULES_REVIEWS.api_version,
        "kind": RULES_REVIEWS.kind,
        "spec": {"namespace": namespace},
    }
    try:
        answer = await client.create(RULES_REVIEWS, asked)
    except KubeError:
        return None
    return items(part(answer, "status"), "resourceRules")


async def denials(client: Client, rights: list[Right]) -> list[Right]:
    """Of some rights, those that the server says are not ours."""
    answers = await asyncio.gather(*(is_denied(client, each) for each in rights))
    return [right for right, is_no in zip(rights, answers, strict=True) if is_no]


async def is_denied(client: Client, right: Right) -> bool:
    """Whether the server says that we may not do something."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": right.verb,
        "namespace": right.namespace,
        "name": right.name,
    }
    asked: Object = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": {name: text for name, text in attributes.items() if text}},
    }
    try:
        answer = await client.create(ACCESS_REVIEWS, asked)
    except KubeError:
        return False
    return part(answer, "status").get("allowed") is False


async def ungrantable(
    client: Client, steps: Iterable[ApplyStep], held: HeldRights
) -> list[ObjectFailure]:
    """Roles that the server would refuse, because they grant more than we have."""
    failures: list[ObjectFailure] = []
    for step in steps:
        ref, manifest = step.desired.ref, step.desired.manifest
        if ref.group_kind not in ROLE_KINDS:
            continue
        lacking = [each for each in granted(manifest) if not held.covers(each)]
        if not lacking and not manifest.get("aggregationRule"):
            continue
        plural = step.desired.resource.plural
        escalate = Right(RBAC_GROUP, plural, "escalate", ref.namespace, ref.name)
        if not held.covers(escalate) and await is_denied(client, escalate):
            failures.append(
                ObjectFailure(ref, FailureKind.ESCALATION, grant_text(lacking), "escalate")
            )
    return failures


async def unbindable(
    client: Client, steps: Iterable[ApplyStep], held: HeldRights
) -> list[ObjectFailure]:
    """Bindings that the server would refuse, because their role grants more than we have."""
    every = list(steps)
    written = {
        (step.desired.ref.kind, step.desired.ref.name): step.desired.manifest for step in every
    }
    failures: list[ObjectFailure] = []
    for step in every:
        ref, role = step.desired.ref, part(step.desired.manifest, "roleRef")
        if ref.group != RBAC_GROUP or not role:
            continue
        kind, name = str(role.get("kind", "")), str(role.get("name", ""))
        known = written.get((kind, name))
        # What we may write ourselves was found to grant no more than we have, or is named already.
        if known is not None and not known.get("aggregationRule"):
            continue
        namespace = ref.namespace if kind == "Role" else ""
        bind = Right(RBAC_GROUP, f"{kind.lower()}s", "bind", namespace, name)
        if not held.covers(bind) and await is_denied(client, bind):
            text = f"it binds {kind} {name}, which may grant more than the credentials have"
            failures.append(ObjectFailure(ref, FailureKind.ESCALATION, text, "bind"))
    return failures


def grant_text(lacking: list[Right]) -> str:
    """Why a role cannot be written."""
    if not lacking:
        return (
            "it has an aggregation rule, which only an administrator may write; `knfleet rights`"
            " prints the role for one to apply"
        )
    more = f" and {len(lacking) - MOST_NAMED} more" if len(lacking) > MOST_NAMED else ""
    named = ", ".join(str(each) for each in lacking[:MOST_NAMED])
    return f"it grants rights that the credentials lack: {named}{more}"


def missing(right: Right) -> MissingRight:
    """A right as outcomes name it."""
    return MissingRight(right.resource, right.group, right.verb, right.namespace)
