"""How clusters stand that register by AWS roles."""

from knfleet.view.reasons.explanation import HUB_LOG, Explanation, step

ACCESS = ("ManagedCluster: AWSRoleAccess",)
WARNED = (*ACCESS, "ManagedCluster: Event")
CLUSTER = step("The whole message:", "kubectl get managedcluster CLUSTER -o yaml")

AWS: dict[str, Explanation] = {
    "AWSAccessGranted": Explanation(
        "The cluster is accepted: its role and its EKS access entry are there. They are compared"
        " once an hour, and put right if another tool changed them.",
        (),
        written_on=ACCESS,
    ),
    "AWSAccessWithdrawn": Explanation(
        "The cluster is not accepted: the role and the EKS access entry that the hub made for it"
        " were deleted.",
        (),
        "When it is to come back: `knfleet accept --clusters CLUSTER`.",
        ACCESS,
    ),
    "AWSCallFailed": Explanation(
        "A call of AWS failed; the message has the call, the ARN that it was for, and the error"
        " code of AWS. It is repeated with backoff; what was done until then is kept.",
        (CLUSTER, HUB_LOG),
        "Correct what the message says; the page Register by AWS roles lists the permissions"
        " that the hub needs.",
        WARNED,
    ),
    "AWSAccessConflict": Explanation(
        "There is a role or an EKS access entry of that name which this hub did not make for"
        " this cluster: its tags knfleet.dev/hub and knfleet.dev/cluster are missing or others."
        " It is neither used nor changed.",
        (CLUSTER,),
        "Delete it, or hand it over to the hub by the tags that the message names.",
        WARNED,
    ),
    "AWSIdentityInvalid": Explanation(
        "What the cluster says of itself, or what the ClusterManager says of the hub, is no"
        " identity in AWS, or another one than the cluster was accepted with. The cluster gets no"
        " access for it.",
        (CLUSTER, step("The hub's side:", "kubectl get clustermanager cluster-manager -o yaml")),
        "Correct what the message names, or join the cluster again with the right ARNs.",
        WARNED,
    ),
}
