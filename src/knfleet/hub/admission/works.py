"""Rules for ManifestWorks that the API server itself enforces.

What needs arithmetic on bytes or a comparison of all manifests is left to the webhook. A write that
leaves the spec alone is never refused for what is in it, so that a work that was let in before can
always be deleted. The author of a spec needs the rights, not only who names the executor first:
who may change the manifests of a work acts as its executor.
"""

from knfleet.api.meta import Object
from knfleet.api.operator import (
    AGENT_NAMESPACE,
    CLUSTER_MANAGER,
    CLUSTER_MANAGERS,
    NIL_EXECUTOR_GATE,
)
from knfleet.api.work.manifestwork import WORK_FINALIZER, WORKS
from knfleet.api.work.replicaset import REPLICA_SETS
from knfleet.hub.admission.policies import (
    IS_AGENT,
    METADATA,
    SAME_OWNERS,
    AdmissionPolicy,
    PolicyCheck,
)

EXECUTE_AS = "execute-as"
DEFAULT_EXECUTOR = f"system:serviceaccount:{AGENT_NAMESPACE}:klusterlet-work-sa"
"""Who works without an executor act as, by the name that Open Cluster Management gives it."""
CHANGED = ("changed", "oldObject == null || object.?spec != oldObject.?spec")
MAY = f"authorizer.group('{WORKS.group}').resource('{WORKS.plural}')"


WORK_SPEC = "object.spec"
TEMPLATE = "object.spec.manifestWorkTemplate"
"""CEL for the spec of a work, in a ManifestWork and in a ManifestWorkReplicaSet."""


def field_path(spec: str) -> str:
    """CEL for a field, as people write it."""
    return spec.removeprefix("object.")


def at_fault(found: str, spec: str) -> str:
    """CEL for the place and kind of the first manifest of a list of bad ones."""
    index = f"string(variables.manifests.indexOf({found}[0]))"
    kind = f"string({found}[0].?kind.orValue(''))"
    return f"'{field_path(spec)}.workload.manifests[' + {index} + '] (' + {kind} + ')'"


def content(name: str, resource: str, spec: str) -> AdmissionPolicy:
    """What the manifests of a work must have."""
    meta = "m.?metadata.?{field}.orValue('') {comparison} ''"
    nameless = meta.format(field="name", comparison="==")
    generated = meta.format(field="generateName", comparison="!=")
    return AdmissionPolicy(
        name=name,
        group=WORKS.group,
        resources=(resource,),
        only_if=(CHANGED,),
        variables=(
            ("manifests", f"{spec}.?workload.?manifests.orValue([])"),
            ("nameless", f"variables.manifests.filter(m, {nameless})"),
            ("generated", f"variables.manifests.filter(m, {generated})"),
            ("ttl", f"{spec}.?deleteOption.?ttlSecondsAfterFinished.orValue(0)"),
        ),
        rules=(
            PolicyCheck(
                "variables.manifests.size() > 0",
                "Workload manifests should not be empty",
                reason="Invalid",
            ),
            PolicyCheck(
                "variables.nameless.size() == 0",
                message_expression="'name must be set in manifest: '"
                f" + {at_fault('variables.nameless', spec)}",
                reason="Invalid",
            ),
            PolicyCheck(
                "variables.generated.size() == 0",
                message_expression="'generateName must not be set in manifest: '"
                f" + {at_fault('variables.generated', spec)}",
                reason="Invalid",
            ),
            PolicyCheck(
                "variables.ttl >= 0",
                f"{field_path(spec)}.deleteOption.ttlSecondsAfterFinished must not be negative;"
                " leave it out to keep the work",
                reason="Invalid",
            ),
        ),
    )


def executor(name: str, resource: str, spec: str, namespace: str) -> AdmissionPolicy:
    """Who may write works that are applied with the rights of a ServiceAccount of the cluster."""
    account = f"{spec}.executor.subject.?serviceAccount"
    space, own = (f"{account}.?{field}.orValue('')" for field in ("namespace", "name"))
    return AdmissionPolicy(
        name=name,
        group=WORKS.group,
        resources=(resource,),
        only_if=(CHANGED, ("executor", f"has({spec}.executor)")),
        variables=(
            ("name", f"'system:serviceaccount:' + {space} + ':' + {own}"),
            ("executor", f"{space} + '/' + {own}"),
        ),
        rules=(
            PolicyCheck(
                f"{account}.hasValue()",
                "executor service account can not be nil",
                reason="Invalid",
            ),
            PolicyCheck(
                f"!{account}.hasValue()"
                f" || {MAY}{namespace}.name(variables.name).check('{EXECUTE_AS}').allowed()",
                message_expression=(
                    "'user ' + request.userInfo.username + ' cannot manipulate the Manifestwork"
                    " with executor ' + variables.executor + ' in namespace ' +"
                    " object.metadata.namespace + ': it takes the permission to"
                    f" {EXECUTE_AS} {WORKS.plural} of {WORKS.group} named ' + variables.name"
                ),
            ),
        ),
    )


IN_CLUSTER = ".namespace(object.metadata.namespace)"
EVERYWHERE = ""
"""A replica set makes works for any cluster, so its author needs the right for all of them."""

GATES = "params.?spec.workConfiguration.featureGates.orValue([])"


def nil_executor(name: str, resource: str, spec: str, namespace: str) -> AdmissionPolicy:
    """Who may write works without an executor, when the feature that asks for it is on."""
    return AdmissionPolicy(
        name=name,
        group=WORKS.group,
        resources=(resource,),
        only_if=(CHANGED, ("no-executor", f"!has({spec}.executor)")),
        parameters={"apiVersion": CLUSTER_MANAGERS.api_version, "kind": CLUSTER_MANAGERS.kind},
        parameter=CLUSTER_MANAGER,
        variables=(("gates", f"{GATES}.filter(gate, gate.feature == '{NIL_EXECUTOR_GATE}')"),),
        rules=(
            PolicyCheck(
                "variables.gates.size() == 0"
                " || variables.gates[variables.gates.size() - 1].?mode.orValue('') != 'Enable'"
                f" || {MAY}{namespace}.name('{DEFAULT_EXECUTOR}').check('{EXECUTE_AS}').allowed()",
                message_expression=(
                    "'user ' + request.userInfo.username + ' cannot manipulate the Manifestwork"
                    " without an executor in namespace ' + object.metadata.namespace + ': the"
                    f" feature {NIL_EXECUTOR_GATE} is on, so it takes the permission to"
                    f" {EXECUTE_AS} {WORKS.plural} of {WORKS.group} named {DEFAULT_EXECUTOR}'"
                ),
            ),
        ),
    )


AGENT_FINALIZERS = (
    f"variables.finalizers.all(each, each == '{WORK_FINALIZER}' || each in variables.oldFinalizers)"
    f" && variables.oldFinalizers.all(each, each == '{WORK_FINALIZER}'"
    " || each in variables.finalizers)"
)
AGENTS = AdmissionPolicy(
    name="knfleet-agent-works",
    group=WORKS.group,
    resources=(WORKS.plural,),
    operations=("UPDATE",),
    only_if=(("agent", IS_AGENT),),
    variables=METADATA,
    rules=(
        PolicyCheck(
            "object.?spec.orValue(null) == oldObject.?spec.orValue(null)",
            "an agent does not change the spec of a ManifestWork",
        ),
        PolicyCheck(
            "variables.labels == variables.oldLabels"
            f" && variables.annotations == variables.oldAnnotations && {SAME_OWNERS}",
            "an agent changes nothing of a ManifestWork's metadata but its finalizer",
        ),
        PolicyCheck(AGENT_FINALIZERS, f"an agent changes no finalizer but {WORK_FINALIZER}"),
    ),
)

POLICIES = (
    content("knfleet-works", WORKS.plural, WORK_SPEC),
    content("knfleet-work-templates", REPLICA_SETS.plural, TEMPLATE),
    executor("knfleet-work-executor", WORKS.plural, WORK_SPEC, IN_CLUSTER),
    executor("knfleet-work-template-executor", REPLICA_SETS.plural, TEMPLATE, EVERYWHERE),
    nil_executor("knfleet-work-nil-executor", WORKS.plural, WORK_SPEC, IN_CLUSTER),
    nil_executor("knfleet-work-template-nil-executor", REPLICA_SETS.plural, TEMPLATE, EVERYWHERE),
    AGENTS,
)


def work_policies() -> list[Object]:
    """The rules for works with their bindings, ready to be applied."""
    return [manifest for policy in POLICIES for manifest in policy.manifests()]
