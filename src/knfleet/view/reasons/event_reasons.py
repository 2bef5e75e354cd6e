"""What Events on custom resources tell."""

from knfleet.view.reasons.explanation import (
    BOTH,
    CONDITIONS,
    OPERATOR_LOG,
    STATUS,
    Explanation,
    step,
)

EVENT = (f"{BOTH}: Event",)
HISTORY = step(
    "All that happened to the custom resource, the newest last:",
    "kubectl get events -n NAMESPACE --field-selector involvedObject.name=NAME"
    " --sort-by=.lastTimestamp",
)

EVENTS: dict[str, Explanation] = {
    "Installed": Explanation(
        "The release is installed for the first time, and works.", (), written_on=EVENT
    ),
    "Ready": Explanation(
        "The installation works again, or still works after a change.", (), written_on=EVENT
    ),
    "Upgraded": Explanation(
        "Another release than before is installed now, and works.", (), written_on=EVENT
    ),
    "InternalError": Explanation(
        "A condition turned False; the Event repeats its message. The name is that of the Knative"
        " Operator's Events.",
        (STATUS, HISTORY),
        "See the condition's own reason: `knfleet explain KIND/NAME`.",
        EVENT,
    ),
    "UpdateFailed": Explanation(
        "The operator could not write the status of the custom resource to the hub.",
        (OPERATOR_LOG,),
        "It is retried automatically. When the message is about rights, the operator's role on"
        " the hub is older than the operator: apply `knfleet manifests` again.",
        EVENT,
    ),
    "FinalizerUpdate": Explanation(
        "The operator put its finalizer on the custom resource, or took it off.",
        (),
        written_on=EVENT,
    ),
    "FinalizerUpdateFailed": Explanation(
        "The operator could not put its finalizer on the custom resource, or take it off.",
        (OPERATOR_LOG,),
        "It is retried automatically. When the message is about rights, apply `knfleet manifests`"
        " again.",
        EVENT,
    ),
    "SettingWithoutEffect": Explanation(
        "A setting of the custom resource has no effect: it names a workload, container or"
        " ConfigMap that the release does not have, or an unknown value.",
        (HISTORY,),
        "Correct the name or the value; the Event names it.",
        EVENT,
    ),
    "Adopted": Explanation(
        "Objects that the Knative Operator had installed are managed by knfleet now.",
        (),
        written_on=EVENT,
    ),
    "FieldsTakenOver": Explanation(
        "Fields that another field manager owned were set by the operator, because the release or"
        " the custom resource says so.",
        (
            HISTORY,
            step(
                "Who owns which fields of a Deployment:",
                "kubectl --context SPOKE get deployment -n NAMESPACE DEPLOYMENT"
                " --show-managed-fields -o yaml",
            ),
        ),
        "Nothing, when that was to be. Otherwise put the setting into the custom resource, where it"
        " lasts.",
        EVENT,
    ),
    "Pruned": Explanation(
        "Objects that the new release or the new settings no longer contain were deleted from the"
        " target.",
        (),
        written_on=EVENT,
    ),
    "Repaired": Explanation(
        "Another client changed or deleted an object on the target, and it was restored.",
        (HISTORY,),
        "Nothing, when it was an accident. A change that is to last belongs into the custom"
        " resource.",
        EVENT,
    ),
    "RepairFailed": Explanation(
        "Another client changed or deleted an object on the target, and the target does not let"
        " it be restored back.",
        (HISTORY, CONDITIONS),
        "Fix the cause that the Event names: a right, a quota, an admission policy.",
        EVENT,
    ),
    "DriftConflict": Explanation(
        "Another program changes the same fields again and again. The Event names its field"
        " manager; repairs are slowed down, to limit the load on the target.",
        (HISTORY,),
        "Stop the other program from managing that object, or put its value into the custom"
        " resource so that both agree.",
        EVENT,
    ),
    "NotRemoved": Explanation(
        "The custom resource was removed without removing any object, because the anchor on the"
        " target belongs to another hub. Or single objects were not removed: they carry the"
        " operator's label, but no field manager of theirs is the operator, as with a copy that a"
        " user made of one of its objects. The label was removed.",
        (HISTORY,),
        "Nothing, when that hub manages the cluster now, or the named objects are meant to stay."
        " Otherwise remove Knative from the cluster, or the named objects, by hand.",
        EVENT,
    ),
    "Abandoned": Explanation(
        "A custom resource was let go by force (knfleet.dev/on-lost-target: force), although its"
        " target was lost or could not be cleaned. Nothing remembers what is left there.",
        (HISTORY,),
        "Nothing, if the cluster no longer exists. Otherwise remove what is left by hand: its"
        " objects carry the label applyset.kubernetes.io/part-of.",
        EVENT,
    ),
    "Orphaned": Explanation(
        "Objects were left without being cleaned, because an annotation allows it: an"
        " installation on a lost target (knfleet.dev/on-lost-target: orphan or defer), or works"
        " and add-ons of a lost cluster (knfleet.dev/force-detach).",
        (
            step(
                "What the hub remembers to clean should the cluster return:",
                "kubectl get configmaps -A -l knfleet.dev/tombstone=true",
            ),
        ),
        "Nothing, if the cluster no longer exists: delete the tombstone then. A cluster that"
        " returns under the same profile is cleaned automatically.",
        (*EVENT, "ManagedCluster: Event"),
    ),
    "RetryRequested": Explanation(
        "A user requested in the dashboard that everything is compared with the target at once.",
        (HISTORY,),
        written_on=EVENT,
    ),
    "PauseRequested": Explanation(
        "A user paused the installation in the dashboard: the operator does not change its"
        " target, and repairs nothing there, until it is resumed.",
        (HISTORY,),
        "To go on: `kubectl annotate KIND -n NAMESPACE NAME knfleet.dev/paused-`, or resume it in"
        " the dashboard.",
        EVENT,
    ),
    "ResumeRequested": Explanation(
        "A user resumed a paused installation in the dashboard.", (HISTORY,), written_on=EVENT
    ),
    "UpgradeRequested": Explanation(
        "A user chose another release in the dashboard; the Event names the user.",
        (HISTORY, STATUS),
        written_on=EVENT,
    ),
}
