"""How clusters stand: ManagedClusters, their profiles, requests and sets."""

from knfleet.api.cluster.managedcluster import AVAILABLE as AVAILABLE_TYPE
from knfleet.view.reasons.explanation import (
    AGENT_LOG,
    DOCTOR,
    DOCTOR_BOTH,
    HUB_LOG,
    Explanation,
    step,
)

AVAILABLE = (
    "ManagedCluster: ManagedClusterConditionAvailable",
    "ClusterProfile: ControlPlaneHealthy",
)
ACCEPTED = ("ManagedCluster: HubAcceptedManagedCluster",)
CERTIFICATE = ("ManagedCluster: ClusterCertificateRotated",)
CLOCK = ("ManagedCluster: ManagedClusterConditionClockSynced",)
REQUEST = ("CertificateSigningRequest: Approved",)
MEMBER = ("ManagedCluster: status.managedNamespaces: NamespaceAvailable",)
REQUESTS = step(
    "The certificate requests of the cluster:",
    "kubectl get csr -l open-cluster-management.io/cluster-name=CLUSTER",
)

CLUSTER: dict[str, Explanation] = {
    "HubClusterAdminAccepted": Explanation(
        "The hub has accepted the cluster.", (), written_on=(*ACCEPTED, "ManagedCluster: Event")
    ),
    "HubClusterAdminDenied": Explanation(
        "The cluster was accepted once, and spec.hubAcceptsClient was set back to false: its"
        " agent has no rights on the hub any more, and its profiles are withdrawn.",
        (DOCTOR,),
        "When it is to come back: `knfleet accept --clusters CLUSTER`.",
        (*ACCEPTED, "ManagedCluster: Event"),
    ),
    "ReservedName": Explanation(
        "The cluster has the name of the group of all agents: what it may do, all would. It gets no"
        " rights.",
        (DOCTOR,),
        "Delete the ManagedCluster, and have the cluster join by another name.",
        ACCEPTED,
    ),
    "NamespaceKept": Explanation(
        "The ManagedCluster was deleted with the annotation knfleet.dev/delete-namespace, but the"
        " hub did not make the namespace of its name for it: so that stays.",
        (),
        "Delete the namespace yourself, if it is not in use.",
        ("ManagedCluster: Event",),
    ),
    "ManagedClusterJoined": Explanation(
        "The agent has logged in with the certificate that the hub gave it.",
        (),
        written_on=("ManagedCluster: ManagedClusterJoined", "ClusterProfile: Joined"),
    ),
    "ManagedClusterAvailable": Explanation(
        "The agent sends heartbeats, and reports that the cluster's API server is healthy.",
        (),
        written_on=AVAILABLE,
    ),
    "ManagedClusterKubeAPIServerUnavailable": Explanation(
        "The agent sends heartbeats, and reports that its own cluster's API server does not"
        " answer as it should.",
        (
            step(
                "Health of the API server:",
                "kubectl --context SPOKE get --raw '/readyz?verbose'",
            ),
            AGENT_LOG,
        ),
        "Fix the API server (often its etcd, or an admission webhook that hangs). The condition"
        " is updated automatically.",
        AVAILABLE,
    ),
    "ManagedClusterLeaseUpdateStopped": Explanation(
        "The cluster's agent has not renewed its Lease for five lease durations (five minutes by"
        " default): the cluster is down, the agent is stopped, or it does not reach the hub."
        " Whether Knative still runs there is unknown.",
        (
            DOCTOR,
            DOCTOR_BOTH,
            step(
                "When the agent last renewed its Lease:",
                "kubectl get lease -n CLUSTER managed-cluster-lease -o yaml",
            ),
            AGENT_LOG,
        ),
        "Restore the cluster, its agent or its connection to the hub: the condition turns True"
        " within one lease duration. An agent whose certificate has ended joins again with the"
        " command that `knfleet get token` prints. If the cluster no longer exists: `knfleet"
        " detach CLUSTER --force`.",
        AVAILABLE,
    ),
    "Available": Explanation(
        "The agent has reported that its cluster is available, again or for the first time.",
        (),
        written_on=("ManagedCluster: Event",),
    ),
    "Unavailable": Explanation(
        "The agent has reported that its cluster's API server is not healthy: the Event beside"
        " the reason ManagedClusterKubeAPIServerUnavailable.",
        (DOCTOR,),
        "See `knfleet explain ManagedClusterKubeAPIServerUnavailable`.",
        ("ManagedCluster: Event",),
    ),
    "NamespaceApplied": Explanation(
        "The namespace that a set lists for the cluster is there.", (), written_on=MEMBER
    ),
    "NamespaceApplyFailed": Explanation(
        "The agent could not make or label a namespace that a set lists for the cluster; the"
        " message has the API server's error.",
        (AGENT_LOG,),
        "Fix what the message names, or remove the namespace from spec.managedNamespaces of the"
        " set. The agent retries automatically.",
        MEMBER,
    ),
    "AvailableUnknown": Explanation(
        "The hub has stopped hearing of the cluster's agent: the Event beside the reason"
        " ManagedClusterLeaseUpdateStopped.",
        (DOCTOR,),
        "See `knfleet explain ManagedClusterLeaseUpdateStopped`.",
        ("ManagedCluster: Event",),
    ),
    "ManagedClusterClockSynced": Explanation(
        "The clocks of hub and cluster agree.", (), written_on=CLOCK
    ),
    "ManagedClusterClockOutOfSync": Explanation(
        "The cluster's clock is further from the hub's than the Lease allows. The agent reports"
        " nothing meanwhile, because certificates and Leases cannot be judged.",
        (
            step(
                "How far the clock is off, in the message:",
                "kubectl get managedcluster CLUSTER -o yaml",
            ),
        ),
        "Synchronise both clocks, for instance by NTP. The annotation"
        " registration.open-cluster-management.io/skip-clock-sync-check=true on the ManagedCluster"
        " switches the check off.",
        CLOCK,
    ),
    "ClientCertificateUpdated": Explanation(
        "The agent has a certificate; the message says from when to when it is valid.",
        (),
        written_on=CERTIFICATE,
    ),
    "ClientCertificateUpdateFailed": Explanation(
        "The agent asked for its next certificate and did not get it; the old one serves until it"
        " ends.",
        (REQUESTS, DOCTOR),
        "Approve or delete requests that are pending, and see that the cluster is still accepted."
        " It is retried automatically. Once the certificate has ended, join again with the"
        " command that `knfleet get token` prints.",
        CERTIFICATE,
    ),
    "ResourceRemaining": Explanation(
        "The ManagedCluster is being deleted, and works or add-ons of it are left on the hub; its"
        " agent must clean them up first. The message counts and names them, and repeats what the"
        " agent reports about those whose deletion takes long.",
        (
            step("What is left:", "knfleet get works --cluster CLUSTER"),
            step(
                "The same with add-ons, as Kubernetes shows it:",
                "kubectl get manifestworks,managedclusteraddons -n CLUSTER",
            ),
            DOCTOR,
        ),
        "Wait for the agent. Works are deleted by the annotation"
        " open-cluster-management.io/cleanup-priority, the lowest first. If the cluster no"
        " longer exists: `knfleet detach CLUSTER --force`, or set how long it must have been"
        " unreachable before they are abandoned: `kubectl annotate managedcluster CLUSTER"
        " knfleet.dev/force-detach=10m`.",
        ("ManagedCluster: Deleting",),
    ),
    "DeletingError": Explanation(
        "The ManagedCluster is being deleted, and the hub could not do its part of it; the message"
        " has the API server's words.",
        (HUB_LOG,),
        "Fix what the message names. When it is about rights, run `knfleet init` again with the"
        " release that runs. The hub tries again by itself.",
        ("ManagedCluster: Deleting",),
    ),
    "NoResource": Explanation(
        "The ManagedCluster is being deleted, nothing that the hub cares for is left of it, and"
        " finalizers of others are what it waits for; the message names them.",
        (step("The finalizers:", "kubectl get managedcluster CLUSTER -o yaml"),),
        "See that the controllers that put them there run.",
        ("ManagedCluster: Deleting",),
    ),
    "CompletedWorkDeleted": Explanation(
        "A ManifestWork was complete, and the time was over for which its"
        " spec.deleteOption.ttlSecondsAfterFinished keeps it: the hub deleted it, and its agent"
        " what it applied.",
        (),
        written_on=("ManifestWork: Event",),
    ),
    "ProfileBlocked": Explanation(
        "The cluster's ClusterProfile, or the Secret with its token, cannot be written in a"
        " namespace: something of that name is there that knfleet did not make.",
        (
            step("What is there of that name:", "kubectl get clusterprofiles,secrets -A"),
            step("The Event names it:", "kubectl get events -n CLUSTER"),
        ),
        "Rename or delete the conflicting object, or unbind the set from that namespace: `knfleet"
        " clusterset unbind global --namespace PROFILE_NAMESPACE`.",
        ("ManagedCluster: Event",),
    ),
    "ClusterNameTaken": Explanation(
        "Another agent asked to join under the name of a cluster whose agent is active; its"
        " request was denied.",
        (REQUESTS, DOCTOR),
        "Join under another name. When the old agent is to be replaced: `knfleet accept --clusters"
        " CLUSTER --allow-reregistration`.",
        ("ManagedCluster: Event", "CertificateSigningRequest: Denied"),
    ),
    "AcceptedByAdministrator": Explanation(
        "A person approved the cluster's certificate request by `knfleet accept`.",
        (),
        written_on=REQUEST,
    ),
    "AutoApprovedByHubCSRApprovingController": Explanation(
        "The hub approved a certificate request automatically: the agent renews its own"
        " certificate, or the user who asked is configured for automatic approval.",
        (),
        written_on=REQUEST,
    ),
    "NotReported": Explanation(
        "The profile's cluster has been accepted, and its agent has not reported yet.",
        (DOCTOR, DOCTOR_BOTH),
        "It passes when the agent has joined, usually within seconds. Until then nothing is"
        " installed there.",
        ("ClusterProfile: ControlPlaneHealthy, Joined",),
    ),
    AVAILABLE_TYPE: Explanation(
        (
            "The cluster's agent reported its state without a reason; the profile repeats its"
            " message."
        ),
        (DOCTOR,),
        "See the condition's status and message.",
        ("ClusterProfile: ControlPlaneHealthy",),
    ),
    "NoClusterMatched": Explanation(
        "No cluster belongs to the set.",
        (step("The clusters and their sets:", "knfleet status -o wide"),),
        "Put clusters into it: `knfleet clusterset set SET --clusters CLUSTER`.",
        ("ManagedClusterSet: ClusterSetEmpty",),
    ),
    "ClustersSelected": Explanation(
        "The set has clusters; the message counts them.",
        (),
        written_on=("ManagedClusterSet: ClusterSetEmpty",),
    ),
    "ClusterSetBound": Explanation(
        "The set exists, and the profiles of its clusters appear in the namespace.",
        (),
        written_on=("ManagedClusterSetBinding: Bound",),
    ),
    "ClusterSetNotFound": Explanation(
        "A binding names a set that does not exist.",
        (step("Which sets there are:", "kubectl get managedclustersets"),),
        "Create the set, or delete the binding: `knfleet clusterset unbind SET --namespace"
        " NAMESPACE`.",
        ("ManagedClusterSetBinding: Bound",),
    ),
}
