"""Rules of the fleet that the API server itself enforces, whether or not a hub is running.

Open Cluster Management has webhooks for them, and nothing can be written while those are down.
These are ValidatingAdmissionPolicies: CEL that also asks RBAC, by the same virtual resources.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from knfleet.api.cluster.managedcluster import (
    ACCEPTED,
    AGENT_ANNOTATIONS,
    AGENT_LABELS,
    GROUP_PREFIX,
    HUB_ANNOTATIONS,
    MAPPED_PREFIX,
    OUR_ANNOTATIONS,
    REGISTER_GROUP,
    RESERVED_NAMES,
    RESERVED_PREFIX,
    SET_LABEL,
)
from knfleet.api.cluster.managedcluster import GROUP as CLUSTER_GROUP
from knfleet.api.meta import Object
from knfleet.api.operator import BOOTSTRAP_PREFIX, BOOTSTRAP_USERS, GRPC_SERVER_USER

POLICY_VERSION = "admissionregistration.k8s.io/v1"

MAY = "authorizer.group('{group}').resource('{resource}').subresource('{part}')"
ACCEPT = MAY.format(group=REGISTER_GROUP, resource="managedclusters", part="accept")
TAINT_TIMES = MAY.format(group=REGISTER_GROUP, resource="managedclusters", part="tainttimes")
JOIN = MAY.format(group=CLUSTER_GROUP, resource="managedclustersets", part="join")
BIND = MAY.format(group=CLUSTER_GROUP, resource="managedclustersets", part="bind")

NEW_SET = f"(has(object.metadata.labels) ? object.metadata.labels[?'{SET_LABEL}'].orValue('') : '')"
OLD_SET = (
    "(oldObject != null && has(oldObject.metadata.labels)"
    f" ? oldObject.metadata.labels[?'{SET_LABEL}'].orValue('') : '')"
)


class PolicyCheck(Struct, frozen=True):
    """Something that must hold, and the message when it does not."""

    expression: str
    message: str = ""
    message_expression: str = ""
    reason: Literal["Forbidden", "Invalid"] = "Forbidden"

    def manifest(self) -> Object:
        """The rule as a policy writes it."""
        written: Object = {"expression": self.expression, "reason": self.reason}
        if self.message:
            written["message"] = self.message
        if self.message_expression:
            written["messageExpression"] = self.message_expression
        return written


class AdmissionPolicy(Struct, frozen=True, kw_only=True):
    """Rules for writes of one kind."""

    name: str
    group: str
    resources: tuple[str, ...]
    rules: tuple[PolicyCheck, ...]
    names: tuple[str, ...] = ()
    """Only objects of these names, if any are given."""
    version: str = "*"
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    variables: tuple[tuple[str, str], ...] = ()
    only_if: tuple[tuple[str, str], ...] = ()
    """Conditions under which it applies at all, by name."""
    labelled: str = ""
    """Only objects that have this label, if one is given."""
    parameters: Object | None = None
    """The kind of objects that the rules look at besides."""
    parameter: str = ""
    """The name of the one object of that kind which counts; all do when empty.

    If it is missing, the rules are not looked at; if all are, the answer is no."""

    def manifests(self) -> list[Object]:
        """The policy and its binding."""
        matched: Object = {
            "apiGroups": [self.group],
            "apiVersions": [self.version],
            "operations": list(self.operations),
            "resources": list(self.resources),
        }
        if self.names:
            matched["resourceNames"] = list(self.names)
        constraints: Object = {"resourceRules": [matched]}
        if self.labelled:
            has = {"key": self.labelled, "operator": "Exists"}
            constraints["objectSelector"] = {"matchExpressions": [has]}
        spec: Object = {
            "failurePolicy": "Fail",
            "matchConstraints": constraints,
            "variables": [{"name": name, "expression": text} for name, text in self.variables],
            "matchConditions": [{"name": name, "expression": text} for name, text in self.only_if],
            "validations": [each.manifest() for each in self.rules],
        }
        bound: Object = {"policyName": self.name, "validationActions": ["Deny"]}
        if self.parameters is not None:
            spec["paramKind"] = self.parameters
            named: Object = {"name": self.parameter, "parameterNotFoundAction": "Allow"}
            every: Object = {"selector": {}, "parameterNotFoundAction": "Deny"}
            bound["paramRef"] = named if self.parameter else every
        return [
            policy_object("ValidatingAdmissionPolicy", self.name, spec),
            policy_object("ValidatingAdmissionPolicyBinding", self.name, bound),
        ]


def policy_object(kind: str, name: str, spec: Object) -> Object:
    """An object of the admission API."""
    return {
        "apiVersion": POLICY_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {field: value for field, value in spec.items() if value != []},
    }


OLD_META = "oldObject != null ? oldObject.metadata.?{field}.orValue({empty}) : {empty}"
NEW_META = "object.metadata.?{field}.orValue({empty})"
METADATA = (
    ("annotations", NEW_META.format(field="annotations", empty="{}")),
    ("oldAnnotations", OLD_META.format(field="annotations", empty="{}")),
    ("labels", NEW_META.format(field="labels", empty="{}")),
    ("oldLabels", OLD_META.format(field="labels", empty="{}")),
    ("finalizers", NEW_META.format(field="finalizers", empty="[]")),
    ("oldFinalizers", OLD_META.format(field="finalizers", empty="[]")),
    ("owners", NEW_META.format(field="ownerReferences", empty="[]")),
    ("oldOwners", OLD_META.format(field="ownerReferences", empty="[]")),
)
"""Variables: metadata that the hub or Kubernetes acts on, as it is and as it was."""
SAME_OWNERS = "variables.owners == variables.oldOwners"
NO_NEW_FINALIZERS = "variables.finalizers.all(each, each in variables.oldFinalizers)"
KEPT_FINALIZERS = (
    f"variables.oldFinalizers.all(each, !each.startsWith('{CLUSTER_GROUP}/')"
    " || each in variables.finalizers)"
)
NEEDS_ACCEPT = f"one needs the permission to update managedclusters/accept of {REGISTER_GROUP}"
OURS = f"(key.startsWith('{OUR_ANNOTATIONS}') || key in {list(HUB_ANNOTATIONS)})"


def kept(field: str, old: str, *, unless: str) -> str:
    """CEL for entries of a map that stay as they are, unless a condition on their `key` holds."""
    return (
        f"variables.{field}.all(key, {unless} || (key in variables.{old}"
        f" && variables.{old}[key] == variables.{field}[key]))"
        f" && variables.{old}.all(key, {unless} || key in variables.{field})"
    )


ACCEPTANCE = AdmissionPolicy(
    name="knfleet-acceptance",
    group=CLUSTER_GROUP,
    resources=("managedclusters",),
    variables=(
        ("mayAccept", f"{ACCEPT}.name(object.metadata.name).check('update').allowed()"),
        *METADATA,
        ("accepts", "has(object.spec) && object.spec.?hubAcceptsClient.orValue(false)"),
        (
            "accepted",
            (
                "oldObject != null && has(oldObject.spec)"
                " && oldObject.spec.?hubAcceptsClient.orValue(false)"
            ),
        ),
        ("newSet", NEW_SET),
        ("oldSet", OLD_SET),
        ("taints", "has(object.spec) ? object.spec.?taints.orValue([]) : []"),
        (
            "oldTaints",
            "oldObject != null && has(oldObject.spec) ? oldObject.spec.?taints.orValue([]) : []",
        ),
    ),
    rules=(
        PolicyCheck(
            f"oldObject != null || !(object.metadata.name in {list(RESERVED_NAMES)}"
            f" || object.metadata.name.startsWith('{RESERVED_PREFIX}'))",
            message="the name is reserved, for something else is called so; choose another",
        ),
        PolicyCheck(
            "!variables.accepts || variables.accepted || variables.mayAccept",
            message_expression=(
                f"'to accept cluster ' + object.metadata.name + ', {NEEDS_ACCEPT}'"
            ),
        ),
        PolicyCheck(
            f"variables.mayAccept || ({kept('annotations', 'oldAnnotations', unless=f'!{OURS}')})",
            message=f"to change annotations of a cluster that the hub acts on, {NEEDS_ACCEPT}",
        ),
        PolicyCheck(
            f"variables.mayAccept || ({NO_NEW_FINALIZERS} && {KEPT_FINALIZERS} && {SAME_OWNERS})",
            message=f"to change finalizers or owner references of a cluster, {NEEDS_ACCEPT}",
        ),
        PolicyCheck(
            "variables.newSet == variables.oldSet || ["
            "variables.newSet, variables.oldSet].all(set, set == ''"
            f" || {JOIN}.name(set).check('create').allowed())",
            message=(
                "to move a cluster between sets one needs the permission to create"
                f" managedclustersets/join of {CLUSTER_GROUP} for both"
            ),
        ),
        PolicyCheck(
            "variables.taints.all(taint, !has(taint.timeAdded) || variables.oldTaints.exists("
            "old, old.key == taint.key && old.effect == taint.effect"
            " && old.?timeAdded.orValue(null) == taint.timeAdded))"
            f" || {TAINT_TIMES}.check('update').allowed()",
            message="the hub fills in the time of a taint; leave out timeAdded",
        ),
    ),
)

IS_AGENT = (
    f"request.userInfo.username.startsWith('{GROUP_PREFIX}') || request.userInfo.groups.exists("
    f"group, group.startsWith('{GROUP_PREFIX}') || group.startsWith('{MAPPED_PREFIX}'))"
    f" || request.userInfo.username == '{GRPC_SERVER_USER}'"
)
"""By name and by any of its groups: an agent may lack one of them, and does not choose its name.

The gRPC server writes for agents, so what they may not do it may not do either."""
SAME = "{new}.?{field}.orValue(null) == {old}.?{field}.orValue(null)"


def unchanged(field: str) -> str:
    """CEL for a field of the spec that stays as it is."""
    return SAME.format(new="object.spec", old="oldObject.spec", field=field)


AGENTS = AdmissionPolicy(
    name="knfleet-agents",
    group=CLUSTER_GROUP,
    resources=("managedclusters",),
    operations=("UPDATE",),
    only_if=(("agent", IS_AGENT),),
    variables=METADATA,
    rules=(
        PolicyCheck(
            "!has(object.spec) || !has(oldObject.spec) || ("
            + " && ".join(
                unchanged(each) for each in ("hubAcceptsClient", "taints", "leaseDurationSeconds")
            )
            + ")",
            "an agent changes nothing of its cluster's spec but managedClusterClientConfigs",
        ),
        PolicyCheck(
            f"variables.finalizers == variables.oldFinalizers && {SAME_OWNERS}",
            "an agent does not change its cluster's finalizers or owner references",
        ),
        PolicyCheck(
            f"{NEW_SET} == {OLD_SET}",
            "an agent does not move its cluster to another set",
        ),
        PolicyCheck(
            kept("annotations", "oldAnnotations", unless=f"key.startsWith('{AGENT_ANNOTATIONS}')"),
            f"an agent changes only annotations that begin with {AGENT_ANNOTATIONS}",
        ),
    ),
)


def is_bootstrap(user: str) -> str:
    """CEL for a user that is one of those who ask for clusters to join."""
    return f"({user} in {list(BOOTSTRAP_USERS)} || {user}.startsWith('{BOOTSTRAP_PREFIX}'))"


def agent_labels(prefixes: Sequence[str]) -> AdmissionPolicy:
    """Sets and placements choose by labels, so an agent has few of its own."""
    own = f"key == '{SET_LABEL}' || {list(prefixes)}.exists(prefix, key.startsWith(prefix))"
    named = " or ".join(prefixes) or "nothing"
    return AdmissionPolicy(
        name="knfleet-agent-labels",
        group=CLUSTER_GROUP,
        resources=("managedclusters",),
        only_if=(("agent", f"({IS_AGENT}) || {is_bootstrap('request.userInfo.username')}"),),
        variables=METADATA,
        rules=(
            PolicyCheck(
                kept("labels", "oldLabels", unless=f"({own})"),
                f"an agent sets only labels of its cluster that begin with {named};"
                " others are for who runs the hub to set, after the cluster has joined",
            ),
        ),
    )


HUB_CONDITION = (
    "{object}.?status.conditions.orValue([]).filter(c, c.type == '" + ACCEPTED + "')"
    ".map(c, [c.type, c.status, c.?reason.orValue(''), c.?message.orValue('')])"
)
"""What the hub says, without what clients write differently: times, and numbers that are zero."""

AGENT_STATUS = AdmissionPolicy(
    name="knfleet-agent-status",
    group=CLUSTER_GROUP,
    resources=("managedclusters/status",),
    operations=("UPDATE",),
    only_if=(("agent", IS_AGENT),),
    rules=(
        PolicyCheck(
            f"{HUB_CONDITION.format(object='object')} == "
            + HUB_CONDITION.format(object="oldObject"),
            f"only the hub sets {ACCEPTED}",
        ),
    ),
)

BINDING = AdmissionPolicy(
    name="knfleet-binding",
    group=CLUSTER_GROUP,
    resources=("managedclustersetbindings",),
    only_if=(("changed", "oldObject == null || object.spec != oldObject.spec"),),
    rules=(
        PolicyCheck(
            f"{BIND}.name(object.spec.clusterSet).check('create').allowed()",
            message_expression=(
                "'to bind set ' + object.spec.clusterSet + ' one needs the permission to create"
                f" managedclustersets/bind of {CLUSTER_GROUP} for it'"
            ),
        ),
    ),
)

POLICIES = (ACCEPTANCE, AGENTS, AGENT_STATUS, BINDING)


def policies(labels: Sequence[str] = AGENT_LABELS) -> list[Object]:
    """The rules for clusters, agents and sets with their bindings, ready to be applied.

    `labels` are the prefixes of those that agents may give their clusters.
    """
    every = (*POLICIES, agent_labels(labels))
    return [manifest for policy in every for manifest in policy.manifests()]
