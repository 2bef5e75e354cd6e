"""Rules and roles of RBAC, as manifests."""

from collections.abc import Iterable

from knfleet.api.meta import Object

RBAC_GROUP = "rbac.authorization.k8s.io"
READ = ["get", "list", "watch"]
WRITE = ["create", "update", "patch", "delete"]


def rule(
    group: str, resources: Iterable[str], verbs: Iterable[str], names: Iterable[str] = ()
) -> Object:
    """A rule of a role; with names, only for objects of these names."""
    written: Object = {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}
    return {**written, "resourceNames": [*names]} if names else written


def cluster_role(name: str, rules: Iterable[Object]) -> Object:
    """A ClusterRole."""
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [*rules],
    }


def merged(rules: Iterable[Object]) -> list[Object]:
    """The rules without repetitions, in their order."""
    kept: list[Object] = []
    for each in rules:
        if each not in kept:
            kept.append(each)
    return kept
