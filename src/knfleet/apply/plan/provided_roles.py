"""ClusterRoles that an administrator has made beforehand, and that are left as they are.

An API server asks of those who write a role for all rights in it, and for all rights there are when
it has an aggregation rule. So an administrator makes Knative's ClusterRoles for an account that has
less. Such a role may stand for those of several releases; an annotation has their digests. While a
release asks for one of these, nothing is written.
"""

import hashlib
from typing import Any

import msgspec

from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.manifest_fields import items, part

AGGREGATION = "aggregationRule"
VERSION_LABEL = "app.kubernetes.io/version"
encode = msgspec.json.Encoder(order="deterministic").encode


def role_digest(manifest: Object) -> str:
    """The digest of what a role grants; equal for roles that grant the same in the same words."""
    return hashlib.sha256(encode(content(manifest))).hexdigest()[:16]


def content(manifest: Object) -> Object:
    """What a role grants; rules beside an aggregation rule are the cluster's."""
    name = AGGREGATION if manifest.get(AGGREGATION) else "rules"
    return {name: manifest.get(name) or []}


def provided_role(manifest: Object) -> Object:
    """A role of a release as an administrator makes it beforehand.

    Its own labels stay: by them other roles gather its rights.
    """
    meta = manifest["metadata"]
    labels = {name: text for name, text in part(meta, "labels").items() if name != VERSION_LABEL}
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": {
            "name": meta["name"],
            "labels": {**labels, well_known.PROVIDED: "true"},
            "annotations": {well_known.PROVIDES: role_digest(manifest)},
        },
        **content(manifest),
    }


def joined_roles(one: Object, other: Object) -> Object:
    """A role that stands for two; what differs in metadata is as the first one has it."""
    digests = {*provides(one), *provides(other)}
    merged: dict[str, Any] = {**one, **content(one)}
    if not one.get(AGGREGATION):
        rules = items(one, "rules")
        merged["rules"] = [*rules, *(each for each in items(other, "rules") if each not in rules)]
    annotations = {well_known.PROVIDES: ",".join(sorted(digests))}
    merged["metadata"] = {**one["metadata"], "annotations": annotations}
    return merged


def provides(role: Object) -> list[str]:
    """The digests of the roles that a role stands for."""
    text: str = part(role, "metadata", "annotations").get(well_known.PROVIDES, "")
    return text.split(",")


def is_provided(role: Object) -> bool:
    """Whether an administrator has made a role for us."""
    return well_known.PROVIDED in part(role, "metadata", "labels")
