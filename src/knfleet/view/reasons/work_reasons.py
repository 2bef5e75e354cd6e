"""How ManifestWorks stand: what the agent of a cluster writes into their status."""

from knfleet.view.reasons.explanation import AGENT_LOG, Explanation, step

MANIFEST = "ManifestWork: status.resourceStatus.manifests"
APPLIED = (f"{MANIFEST}: Applied",)
AVAILABLE = (f"{MANIFEST}: Available",)
FEEDBACK = (f"{MANIFEST}: StatusFeedbackSynced",)
RULE = (f"{MANIFEST}: the condition of a rule",)
STATUS = step("The message of each manifest:", "kubectl get manifestwork -n CLUSTER NAME -o yaml")

WORK: dict[str, Explanation] = {
    "AppliedManifestWorkComplete": Explanation(
        "All manifests of the work are applied.", (), written_on=("ManifestWork: Applied",)
    ),
    "AppliedManifestWorkFailed": Explanation(
        "Some manifests of the work are not applied; the others are.",
        (STATUS, AGENT_LOG),
        "Correct what the message of the manifest names; what fails is tried again by itself.",
        ("ManifestWork: Applied",),
    ),
    "AppliedManifestComplete": Explanation(
        "The object is as the manifest says.", (), written_on=APPLIED
    ),
    "AppliedManifestFailed": Explanation(
        "The object could not be written; the message has the answer of the cluster.",
        (STATUS,),
        "Correct the manifest or the cluster. A kind or namespace that is missing is waited for.",
        APPLIED,
    ),
    "AppliedManifestSSAIgnoreFieldError": Explanation(
        "A path below ignoreFields cannot be used, so that nothing was applied.",
        (STATUS,),
        "Correct the JSONPath, JSON pointer or jq expression that the message names.",
        APPLIED,
    ),
    "ResourcesAvailable": Explanation(
        "All objects of the work exist on the cluster.",
        (),
        written_on=("ManifestWork: Available",),
    ),
    "ResourcesNotAvailable": Explanation(
        "Some objects of the work do not exist on the cluster.",
        (STATUS,),
        "See why their manifests are not applied.",
        ("ManifestWork: Available",),
    ),
    "ResourcesStatusUnknown": Explanation(
        "The agent cannot tell of some objects whether they exist.",
        (STATUS, AGENT_LOG),
        "Give the agent the right to list the kind, or install the kind.",
        ("ManifestWork: Available",),
    ),
    "ResourceAvailable": Explanation("The object exists.", (), written_on=AVAILABLE),
    "ResourceNotAvailable": Explanation(
        "The object does not exist.", (STATUS,), "See why the manifest is not applied.", AVAILABLE
    ),
    "IncompleteResourceMeta": Explanation(
        "The manifest names no object: its kind is not served by the cluster, or it has no name.",
        (STATUS,),
        "Correct the manifest, or install the kind.",
        AVAILABLE,
    ),
    "FetchingResourceFailed": Explanation(
        "The agent cannot see the object; the message has the answer of the cluster.",
        (STATUS, AGENT_LOG),
        "Give the agent the right to list and watch the kind.",
        AVAILABLE,
    ),
    "StatusFeedbackSynced": Explanation(
        "All values that the feedback rules ask for are reported.", (), written_on=FEEDBACK
    ),
    "NoStatusFeedbackSynced": Explanation(
        "No feedback rule asks for values of the object.", (), written_on=FEEDBACK
    ),
    "StatusFeedbackSyncFailed": Explanation(
        "Some values that the feedback rules ask for cannot be reported; the others are.",
        (STATUS,),
        "Correct the path that the message names, or switch on RawFeedbackJsonString for lists and"
        " objects.",
        FEEDBACK,
    ),
    "ConditionRuleEvaluated": Explanation(
        "The condition is what its rule says.", (), written_on=RULE
    ),
    "ConditionRuleInvalid": Explanation(
        "Nothing is known of the completion of this kind.",
        (STATUS,),
        "Write a rule of type CEL instead of WellKnownConditions.",
        RULE,
    ),
    "ConditionRuleExpressionError": Explanation(
        "An expression of the rule does not compile, or has no value for this object.",
        (STATUS,),
        "Correct the expression; has() asks whether a field is there.",
        RULE,
    ),
    "ConditionRulesAggregated": Explanation(
        "The condition sums up those of all manifests with such a rule.",
        (),
        written_on=("ManifestWork: the condition of a rule",),
    ),
    "WorkDeleting": Explanation(
        "The work is being deleted, and waits for objects that are still there.",
        (step("The message names them, and the finalizers that hold them up."), STATUS),
        "See to it that the controller of the finalizer runs on the cluster.",
        ("ManifestWork: Deleting",),
    ),
}
