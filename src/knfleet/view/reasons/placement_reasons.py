"""What Placements say: how many clusters they selected, and what is wrong with them."""

from knfleet.view.reasons.explanation import Explanation, step

SATISFIED = ("Placement: PlacementSatisfied",)
MISCONFIGURED = ("Placement: PlacementMisconfigured",)
EXPLAIN = step(
    "Every filter and score, cluster by cluster:", "knfleet placement explain NAME -n NAMESPACE"
)
BINDINGS = step(
    "Which cluster sets are bound to the namespace:",
    "kubectl get managedclustersetbindings -n NAMESPACE",
)

PLACEMENT: dict[str, Explanation] = {
    "AllDecisionsScheduled": Explanation(
        "As many clusters are selected as are wanted.", (), written_on=SATISFIED
    ),
    "NotAllDecisionsScheduled": Explanation(
        "Fewer clusters are selected than spec.numberOfClusters wants: no more of them pass"
        " predicates, taints and spreadPolicy. The message says how many each of them left out.",
        (EXPLAIN,),
        "Widen the predicates, tolerate taints, add clusters to the sets, or want fewer clusters.",
        SATISFIED,
    ),
    "NoManagedClusterSetBindings": Explanation(
        "No cluster set is bound to the namespace of the Placement, so it has no clusters to"
        " select from.",
        (BINDINGS,),
        "Bind a set: `knfleet clusterset bind SET --namespace NAMESPACE`.",
        SATISFIED,
    ),
    "NoIntersection": Explanation(
        "None of the sets in spec.clusterSets is bound to the namespace of the Placement.",
        (BINDINGS,),
        "Bind one of these sets, or leave spec.clusterSets out to use all sets that are bound.",
        SATISFIED,
    ),
    "AllManagedClusterSetsEmpty": Explanation(
        "The sets that the Placement selects from have no clusters.",
        (step("Which clusters are in which set:", "knfleet get clusters"),),
        "Add clusters to a set: `knfleet clusterset set SET --clusters CLUSTER`.",
        SATISFIED,
    ),
    "NoManagedClusterMatched": Explanation(
        "The sets have clusters, but predicates and taints leave out all of them.",
        (EXPLAIN,),
        "Change the predicates or the labels of clusters, or tolerate their taints.",
        SATISFIED,
    ),
    "Succeedconfigured": Explanation(
        "The Placement can be followed as it is written. The message names clusters for which an"
        " expression has no value; they are not selected.",
        (),
        written_on=MISCONFIGURED,
    ),
    "Misconfigured": Explanation(
        "The Placement cannot be followed as it is written; the message names the field. Its"
        " decisions stay as they are, apart from clusters that it may no longer select from.",
        (step("The whole message:", "kubectl get placement NAME -n NAMESPACE -o yaml"),),
        "Correct the field that the message names. `knfleet placement explain -f FILE` tries a"
        " change without saving it.",
        MISCONFIGURED,
    ),
}
