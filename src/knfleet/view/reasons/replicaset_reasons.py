"""What ManifestWorkReplicaSets say: their Placements, the rollout, the works."""

from knfleet.view.reasons.explanation import Explanation, step

KIND = "ManifestWorkReplicaSet"
VERIFIED = f"{KIND}: PlacementVerified"
ROLLED_OUT = f"{KIND}: PlacementRolledOut"
APPLIED = f"{KIND}: ManifestworkApplied"
MESSAGE = step("The whole message:", "kubectl get mwrs NAME -n NAMESPACE -o yaml")
WORKS = step("The works, and what agents report of them:", "knfleet get works")

REPLICA_SET: dict[str, Explanation] = {
    "AsExpected": Explanation(
        "The Placements select clusters, or the works of all selected clusters are applied.",
        (),
        written_on=(VERIFIED, APPLIED),
    ),
    "PlacementDecisionNotFound": Explanation(
        "A Placement that the replica set refers to does not exist, or has no decisions yet. Works"
        " that are there stay as they are.",
        (step("Which placements there are:", "knfleet get placements -n NAMESPACE"),),
        "Create the Placement in the namespace of the replica set, or correct spec.placementRefs.",
        (VERIFIED,),
    ),
    "PlacementDecisionEmpty": Explanation(
        "A Placement selects no clusters. Works that are there are deleted when that has lasted"
        " for a minute, at once if the Placement wants no clusters.",
        (step("Why it selects none:", "knfleet placement explain NAME -n NAMESPACE"),),
        "Change the Placement, or the clusters and sets that it selects from.",
        (VERIFIED,),
    ),
    "NotAsExpected": Explanation(
        "A rollout strategy makes no sense, or works of clusters failed or cannot be written. The"
        " message names the field, or the clusters and the first problem.",
        (MESSAGE, WORKS),
        "Correct what the message names. Works that could not be written are tried again every 30"
        " seconds.",
        (VERIFIED, APPLIED),
    ),
    "Processing": Explanation(
        "Not all works are applied yet.",
        (WORKS,),
        written_on=(APPLIED,),
    ),
    "Progressing": Explanation(
        "Not all clusters have the current template, or not for long enough. The message says"
        " which are in progress, which wait, and for what.",
        (MESSAGE, WORKS),
        "Nothing needs to be done, unless clusters failed: correct what their works report, or"
        " raise maxFailures.",
        (ROLLED_OUT,),
    ),
    "Complete": Explanation(
        "All clusters have the current template; the message names those that failed and are"
        " tolerated.",
        (),
        written_on=(ROLLED_OUT,),
    ),
}
