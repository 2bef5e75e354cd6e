"""Whether a pod may run on the node: the few rules of the scheduler that matter with one node."""

from collections.abc import Callable, Mapping

from knfleet.api.meta import Object
from knfleet.dev.node.pods.pod_manifests import is_terminating, labels_of, rows, table

UNSCHEDULABLE: Object = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def wants_node(pod: Object) -> bool:
    """Whether the pod waits for a node now."""
    spec = pod["spec"]
    return not (spec.get("nodeName") or spec.get("schedulingGates") or is_terminating(pod))


def obstacle(pod: Object, node: Object) -> str:
    """Why the pod cannot run on the node, in the scheduler's words; empty when it can."""
    spec = pod["spec"]
    labels = labels_of(node)
    for key, value in table(spec.get("nodeSelector")).items():
        if labels.get(key) != value:
            return f"0/1 nodes are available: the node lacks the label {key}={value}."
    if not affinity_fits(table(spec.get("affinity")), node):
        return "0/1 nodes are available: the node doesn't match the pod's node affinity."
    for taint in taints(node):
        if not any(tolerates(toleration, taint) for toleration in rows(spec.get("tolerations"))):
            return f"0/1 nodes are available: the node has the untolerated taint {taint['key']}."
    return ""


def place_facts(node: Object | None) -> tuple[object, ...]:
    """What of a node decides which pods may run on it."""
    return (labels_of(node), taints(node)) if node else ()


def taints(node: Object) -> list[Object]:
    """The taints that keep pods away; the dev node is never unready for long."""
    spec = table(node.get("spec"))
    found = [
        taint
        for taint in rows(spec.get("taints"))
        if taint["effect"] in {"NoSchedule", "NoExecute"}
        and taint["key"] != "node.kubernetes.io/not-ready"
        and taint["key"] != UNSCHEDULABLE["key"]
    ]
    return [*found, UNSCHEDULABLE] if spec.get("unschedulable") else found


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration covers a taint."""
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    if toleration.get("key") not in {None, "", taint["key"]}:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return toleration.get("value", "") == taint.get("value", "")


def affinity_fits(affinity: Object, node: Object) -> bool:
    """Whether one of the required node selector terms means the node."""
    required = table(affinity.get("nodeAffinity")).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not required:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(requirement_fits(each, labels_of(node)) for each in rows(term.get("matchExpressions")))
        and all(requirement_fits(each, fields) for each in rows(term.get("matchFields")))
        for term in rows(required.get("nodeSelectorTerms"))
    )


def requirement_fits(requirement: Object, labels: Mapping[str, str]) -> bool:
    """Whether labels meet one requirement of a node selector term."""
    value = labels.get(requirement["key"])
    values: list[str] = requirement.get("values") or []
    fits = OPERATORS.get(requirement["operator"])
    return fits is not None and fits(value, values)


OPERATORS: dict[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: value is not None and int(value) > int(values[0]),
    "Lt": lambda value, values: value is not None and int(value) < int(values[0]),
}
