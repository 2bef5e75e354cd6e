"""How an installation stands: conditions of custom resources, and the failures in their words."""

from knfleet.apply.change_set import FailureKind
from knfleet.view.reasons.explanation import (
    BOTH,
    CONDITIONS,
    OPERATOR_LOG,
    STATUS,
    Explanation,
    step,
)

INSTALL_SUCCEEDED = (f"{BOTH}: InstallSucceeded and Ready",)
IN_WORDS = (f"{BOTH}: in brackets, in the message of InstallSucceeded",)
SPOKE_EVENTS = step(
    "What the cluster's own controllers complain about:",
    "kubectl --context SPOKE get events -A --field-selector type=Warning",
)

INSTALL: dict[str, Explanation] = {
    "Installing": Explanation(
        "The objects of the release are being applied, or some of them wait for others: a CRD to be"
        " established, a webhook to answer, a Job to complete.",
        (STATUS, OPERATOR_LOG),
        "It continues automatically. When it does not move for minutes, the message names the"
        " object that is not ready: inspect it on the target.",
        INSTALL_SUCCEEDED,
    ),
    "Uninstalling": Explanation(
        "The custom resource is being deleted, and its objects are being removed from the target.",
        (STATUS,),
        "It continues automatically, and the custom resource is removed when the target is clean."
        " `knfleet wait --for=removed KIND/NAME` returns then.",
        INSTALL_SUCCEEDED,
    ),
    "AlreadyInstalled": Explanation(
        "Another custom resource of the same kind installs on this target already, or another hub"
        " does; there can be only one.",
        (
            step("Which custom resources go to which target:", "knfleet status -o wide"),
            CONDITIONS,
        ),
        "Delete one of them: this one can be deleted without effect, because it owns no objects;"
        " when the other one is deleted, this one is installed instead. When another hub manages"
        " the target, the message names its ConfigMap on the cluster.",
        INSTALL_SUCCEEDED,
    ),
    "Error": Explanation(
        "A step failed; the message names it: the version cannot be changed in one step"
        " (VersionMigrationEligible), release files or settings cannot be used, or the target"
        " refused objects (InstallSucceeded). On a ManagedCluster, the hub could not write what"
        " an accepted cluster needs.",
        (
            STATUS,
            CONDITIONS,
            step("Which releases there are:", "knfleet bundle list"),
            step(
                "Whether it renders without the target, from releases on this machine:",
                "kubectl get KIND -n NAMESPACE NAME -o yaml | knfleet render -f -",
            ),
        ),
        "One minor version at a time: set spec.version to the next minor release, wait until it is"
        " ready, go on. A release that is missing: choose one of those that there are, or `knfleet"
        " bundle pull`. Objects that are refused: the word in brackets at the end of the message"
        " (Forbidden, QuotaExceeded, …) has an explanation of its own. A Job that failed: delete it"
        " on the target, and it runs again.",
        (
            f"{BOTH}: VersionMigrationEligible, InstallSucceeded and Ready",
            "ManagedCluster: HubAcceptedManagedCluster",
        ),
    ),
    "NotReady": Explanation(
        "Everything is applied, and some workloads are not available yet. The message names them"
        " and counts their pods.",
        (
            STATUS,
            step(
                "The workloads on the target itself:",
                "kubectl --context SPOKE get deployments,statefulsets -n NAMESPACE",
            ),
            SPOKE_EVENTS,
        ),
        "A new installation needs a minute or two to pull its images. When it stays: `knfleet"
        " status` shows the pod and the messages of kubelet and scheduler. Usual causes: the"
        " image cannot be pulled (spec.registry), no node has enough resources (spec.workloads"
        " sets requests and replicas), a quota or an admission policy forbids the pod, the"
        " container crashes (see its log).",
        (f"{BOTH}: DeploymentsAvailable and Ready",),
    ),
    "NotKnown": Explanation(
        "Everything is applied; the workloads cannot be seen at the moment, because the watch on"
        " the target has just begun or was cut.",
        (STATUS, OPERATOR_LOG),
        "It passes within seconds. When it stays, the operator may not be allowed to watch"
        " workloads on the target: see its log.",
        (f"{BOTH}: DeploymentsAvailable and Ready",),
    ),
    "Paused": Explanation(
        "The installation is paused by the annotation knfleet.dev/paused: the operator does not"
        " change the target alone. The other conditions say what was last known; a change of the"
        " spec waits, and nothing is repaired.",
        (
            step(
                "Who paused it, when that was done in the dashboard:",
                "kubectl get events -n NAMESPACE --field-selector reason=PauseRequested",
            ),
        ),
        "To go on: `kubectl annotate KIND -n NAMESPACE NAME knfleet.dev/paused-`.",
        (f"{BOTH}: Paused",),
    ),
}

REFUSED: dict[str, Explanation] = {
    FailureKind.FORBIDDEN: Explanation(
        "The operator's credential on the target lacks a right; the message lists verbs, kinds and"
        " namespaces.",
        (
            step(
                "Permissions of the credential, read with its own token:",
                "kubectl --context SPOKE auth can-i --list --as SERVICE_ACCOUNT",
            ),
        ),
        "Grant what is listed to the user of the credential on the target. `knfleet manifests`"
        " prints the roles that an operator needs.",
        IN_WORDS,
    ),
    FailureKind.ESCALATION: Explanation(
        "A role of the release grants rights that the operator does not have itself, and Kubernetes"
        " forbids to hand out what one does not have.",
        (CONDITIONS,),
        "Give the operator's credential on the target those rights, or the verbs escalate and bind"
        " on roles and clusterroles (cluster-admin has them).",
        IN_WORDS,
    ),
    FailureKind.QUOTA: Explanation(
        "A ResourceQuota on the target does not allow one object more.",
        (
            step(
                "What is used and what is allowed:",
                "kubectl --context SPOKE describe resourcequota -n NAMESPACE",
            ),
        ),
        "Raise the quota, or reduce requests by spec.workloads and spec.high-availability.",
        IN_WORDS,
    ),
    FailureKind.TERMINATING: Explanation(
        "The namespace on the target is being deleted, and takes no new objects.",
        (
            step(
                "What keeps it from going away:",
                "kubectl --context SPOKE get namespace NAMESPACE -o yaml",
            ),
        ),
        "Wait until it is gone: it is created again automatically. When it hangs, its conditions"
        " name the finalizers or the API service that hold it.",
        IN_WORDS,
    ),
    FailureKind.NO_NAMESPACE: Explanation(
        "An object belongs to a namespace that does not exist on the target.",
        (CONDITIONS,),
        "Create the namespace that the message names, or correct the manifests of spec.manifests"
        " and spec.additionalManifests that refer to it.",
        IN_WORDS,
    ),
    FailureKind.DENIED: Explanation(
        "An admission policy or a validating webhook of the target denied the object; the message"
        " has its error.",
        (
            step(
                "Which policies and webhooks there are:",
                "kubectl --context SPOKE get validatingwebhookconfigurations,"
                "validatingadmissionpolicies",
            ),
        ),
        "Satisfy the policy (spec.workloads, spec.config and spec.namespace change most of what"
        " policies look at), or exempt Knative's namespaces from it.",
        IN_WORDS,
    ),
    FailureKind.WEBHOOK: Explanation(
        "A webhook of the target does not respond; often it is Knative's own, whose pods are not"
        " ready yet.",
        (
            step(
                "Whether the webhook's Service has endpoints:",
                "kubectl --context SPOKE get endpointslices -n NAMESPACE",
            ),
            STATUS,
        ),
        "It passes when the webhook's pods are ready. If its Deployment no longer exists, delete"
        " the webhook configuration that names it.",
        IN_WORDS,
    ),
    FailureKind.IMMUTABLE: Explanation(
        "A field was changed that Kubernetes does not let anybody change on an object that exists,"
        " such as a selector.",
        (CONDITIONS,),
        "Delete the object that the message names on the target; it is made anew with the new"
        " value. Jobs are replaced without a person.",
        IN_WORDS,
    ),
    FailureKind.INVALID: Explanation(
        "The target does not accept an object as it is: a field has a wrong type or value.",
        (CONDITIONS,),
        "Usually a setting of the custom resource ends up there: correct the field that the message"
        " names. With spec.manifests, correct the manifest.",
        IN_WORDS,
    ),
    FailureKind.UNKNOWN_KIND: Explanation(
        "The target does not know a kind of the release: the CRDs of something that must be there"
        " first are missing, for instance Istio or cert-manager.",
        (
            step(
                "Which kinds of the group the target serves:",
                "kubectl --context SPOKE api-resources --api-group=networking.istio.io",
            ),
        ),
        "Install what brings the kind, or choose an ingress that needs none:"
        " spec.ingress.kourier.enabled: true. It continues automatically when the kind appears.",
        IN_WORDS,
    ),
    FailureKind.NOT_ESTABLISHED: Explanation(
        "A CRD was applied, and the target's API server does not serve it yet.",
        (
            step("Conditions of the CRDs:", "kubectl --context SPOKE get crds -o wide"),
            CONDITIONS,
        ),
        "It passes within seconds. When it stays, the CRD's conditions say why, for instance that"
        " its names are taken by another CRD.",
        IN_WORDS,
    ),
    FailureKind.OTHER_SET: Explanation(
        "An object belongs to another installation: its label applyset.kubernetes.io/part-of names"
        " another set.",
        (CONDITIONS,),
        "Find out which installation it is, and remove one of the two. When that one is long gone,"
        " remove the label from the object, and it is taken over.",
        IN_WORDS,
    ),
    FailureKind.CONFLICT: Explanation(
        "Another client changed the object at the same time.",
        (),
        "It is retried automatically. When it stays, another controller writes the same object"
        " all the time; Events with the reason DriftConflict name it.",
        IN_WORDS,
    ),
    FailureKind.UNANSWERED: Explanation(
        "The target did not answer in time while objects were applied.",
        (STATUS,),
        "It is retried automatically. When the target is lost, TargetClusterResolved is False"
        " within 15 s.",
        IN_WORDS,
    ),
    FailureKind.OTHER: Explanation(
        "The target answered with an error that has no reason of its own; the message has the"
        " error.",
        (CONDITIONS, OPERATOR_LOG),
        "Fix the cause that the message names; it is retried automatically.",
        IN_WORDS,
    ),
}
