"""What KnativeFleets say: their clusters, the rollout, the children."""

from knfleet.view.reasons.explanation import Explanation, step

KIND = "KnativeFleet"
ROLLED_OUT = f"{KIND}: RolledOut"
READY = f"{KIND}: Ready"
SELECTED = f"{KIND}: ClustersSelected"
IN_SYNC = f"{KIND}: InSync"
EVENT = f"{KIND}: Event"
STATUS = step("Waves, clusters, and what the rollout waits for:", "knfleet fleet status NAME")
HISTORY = step("The revisions, and what is different:", "knfleet fleet diff NAME")
CHILD = step(
    "What the custom resource of a cluster says:",
    "kubectl get knativeservings,knativeeventings -A -l fleet.knfleet.dev/fleet=NAME",
)

KNATIVE_FLEET: dict[str, Explanation] = {
    "RolloutStarted": Explanation(
        "The templates or overrides of the fleet changed: a new revision is rolled out.",
        (HISTORY,),
        written_on=(EVENT,),
    ),
    "RolloutProgressing": Explanation(
        "Clusters of the current wave are being changed. The message names some that it waits for.",
        (STATUS,),
        written_on=(ROLLED_OUT,),
    ),
    "RolloutWaiting": Explanation(
        "The current wave waits for minSuccessTime, for the delay between waves, for a gate, or for"
        " a cluster that can be reached.",
        (STATUS,),
        "Nothing needs to be done. `knfleet fleet promote NAME` goes on without waiting.",
        (ROLLED_OUT,),
    ),
    "RolloutPaused": Explanation(
        "spec.paused is true: nothing new is begun. Clusters that were being changed are finished.",
        (STATUS,),
        "Go on with `knfleet fleet resume NAME`.",
        (ROLLED_OUT,),
    ),
    "RolloutHalted": Explanation(
        "More clusters of a wave failed or took longer than progressDeadline than maxFailures"
        " allows. No further cluster is changed; the rollout goes on by itself when enough of them"
        " become ready.",
        (STATUS, CHILD),
        "Correct what the clusters report, and give them time again with `knfleet fleet retry"
        " NAME`; or return to the revision before with `knfleet fleet rollback NAME`.",
        (ROLLED_OUT, EVENT),
    ),
    "RollbackProgressing": Explanation(
        "The rollout failed, and onFailure is Rollback: clusters get the last good revision back.",
        (STATUS, CHILD),
        written_on=(ROLLED_OUT, EVENT),
    ),
    "RolledBack": Explanation(
        "The rollout failed, and clusters have the last good revision again, as far as the scope of"
        " onFailure says. The revision is not tried again by itself.",
        (STATUS, HISTORY, CHILD),
        "Change the spec, or try the revision again with `knfleet fleet retry NAME`.",
        (ROLLED_OUT, EVENT),
    ),
    "RolloutComplete": Explanation(
        "All waves are complete. The message counts clusters that failed and are tolerated, or that"
        " are changed when they can be reached.",
        (),
        written_on=(ROLLED_OUT, EVENT),
    ),
    "WaveComplete": Explanation(
        "All clusters of a wave are done, and the next wave can begin.",
        (),
        written_on=(EVENT,),
    ),
    "InvalidFleet": Explanation(
        "The spec makes no sense in a way that the API server does not check, such as a selector"
        " with an operator that needs values. Children stay as they are.",
        (STATUS,),
        "Correct what the message names.",
        (ROLLED_OUT, SELECTED, EVENT),
    ),
    "FleetDeleting": Explanation(
        "The fleet is deleted when all its children are: Knative is being removed from their"
        " clusters. The message names some.",
        (CHILD,),
        "Correct what the children report. A cluster that is lost for good is given up with the"
        " annotation knfleet.dev/on-lost-target: orphan on its child.",
        (ROLLED_OUT,),
    ),
    "ClustersFound": Explanation(
        "It is known which clusters the fleet has.", (), written_on=(SELECTED,)
    ),
    "NoClustersSelected": Explanation(
        "The fleet selects no cluster. Installations that there are stay as they are.",
        (
            step("The profiles, and their labels:", "kubectl get clusterprofiles -A --show-labels"),
            STATUS,
        ),
        "Correct spec.clusters, or the labels of the ClusterProfiles.",
        (SELECTED, ROLLED_OUT, READY),
    ),
    "PlacementNotFound": Explanation(
        "The Placement that spec.clusters names does not exist in its namespace. Installations that"
        " there are stay as they are.",
        (step("Which placements there are:", "knfleet get placements"),),
        "Create the Placement, or correct spec.clusters.",
        (SELECTED,),
    ),
    "PlacementUndecided": Explanation(
        "The Placement is being decided: it reports another number of clusters than its decisions"
        " have. Clusters are added meanwhile, but none is removed.",
        (step("What the placement selects:", "knfleet get placements"),),
        written_on=(SELECTED,),
    ),
    "FleetReady": Explanation(
        "All clusters have what they were given, and it is ready.", (), written_on=(READY,)
    ),
    "ClustersNotReady": Explanation(
        "Clusters have no Knative yet, or it is not ready there. The message names some.",
        (STATUS, CHILD),
        "Correct what the custom resources of the clusters report: `knfleet explain` explains their"
        " reasons.",
        (READY,),
    ),
    "ChildrenInSync": Explanation(
        "The specs of all children are as the fleet wrote them.", (), written_on=(IN_SYNC,)
    ),
    "ChildrenEdited": Explanation(
        "The specs of children were edited by another client, and driftPolicy is Keep. They are"
        " replaced when their clusters get another revision.",
        (STATUS, CHILD),
        "Put the change into the templates or overrides of the fleet, or set driftPolicy to"
        " Enforce.",
        (IN_SYNC,),
    ),
    "DriftReverted": Explanation(
        "The spec of a child was edited by another client, and was reverted because driftPolicy is"
        " Enforce.",
        (CHILD,),
        "Put the change into the templates or overrides of the fleet, or set driftPolicy to Keep.",
        (EVENT,),
    ),
    "ChildAdopted": Explanation(
        "A custom resource for a cluster of the fleet existed already, and is now its child. Its"
        " spec is replaced by that of the fleet; its name stays.",
        (CHILD,),
        written_on=(EVENT,),
    ),
    "ChildNotWritten": Explanation(
        "The API server refused to write a child. It is tried again every 15 seconds.",
        (STATUS,),
        "Correct what the message names.",
        (EVENT,),
    ),
}
