"""How the hub and the agents stand: ClusterManagers and Klusterlets."""

from knfleet.view.reasons.explanation import AGENT_LOG, HUB_LOG, Explanation, step

CONNECTION = ("Klusterlet: HubConnectionDegraded",)
KLUSTERLET = step(
    "The whole message, on the cluster:",
    "kubectl --context SPOKE get klusterlet klusterlet -o yaml",
)

HUB: dict[str, Explanation] = {
    "ClusterManagerApplied": Explanation(
        "Everything that the hub needs is there.", (), written_on=("ClusterManager: Applied",)
    ),
    "ClusterManagerUpToDate": Explanation(
        "Nothing of the hub is being changed.", (), written_on=("ClusterManager: Progressing",)
    ),
    "HubAvailable": Explanation(
        "The hub's controllers run.", (), written_on=("ClusterManager: Available",)
    ),
    "HubUnavailable": Explanation(
        "The hub's controllers cannot read everything that they need: a watch on the hub's own"
        " API server fails. Clusters that have joined go on; new ones are not accepted.",
        (HUB_LOG,),
        "When the message is about rights, or about a kind that is not there, run `knfleet init`"
        " again with the release that runs: it brings CRDs and roles up to date.",
        ("ClusterManager: Available",),
    ),
    "RegistrationFunctional": Explanation(
        "Clusters can register.", (), written_on=("ClusterManager: HubRegistrationDegraded",)
    ),
    "RegistrationDegraded": Explanation(
        "Clusters cannot register with all configured drivers: the hub cannot read its own"
        " objects, or the ClusterManager names a registration driver that this release does not"
        " have.",
        (
            step("The configured drivers:", "kubectl get clustermanager cluster-manager -o yaml"),
            HUB_LOG,
        ),
        "Take the way out of spec.registrationConfiguration.registrationDrivers, or put right what"
        " the message names.",
        ("ClusterManager: HubRegistrationDegraded",),
    ),
    "PlacementFunctional": Explanation(
        "Clusters can be selected by Placements.",
        (),
        written_on=("ClusterManager: HubPlacementDegraded",),
    ),
    "PlacementDegraded": Explanation(
        "Placements are not updated: the hub does not see its own objects. Decisions"
        " stay as they are.",
        (HUB_LOG,),
        "Correct what the message names; see HubUnavailable.",
        ("ClusterManager: HubPlacementDegraded",),
    ),
    "KlusterletApplied": Explanation(
        "Everything that the agent needs is there.", (), written_on=("Klusterlet: Applied",)
    ),
    "KlusterletAvailable": Explanation(
        "The agent runs.", (), written_on=("Klusterlet: Available",)
    ),
    "DeploymentsFunctional": Explanation(
        "The agent runs.", (), written_on=("Klusterlet: RegistrationDesiredDegraded",)
    ),
    "Starting": Explanation(
        "The agent has just started, and has not tried to reach the hub yet.",
        (AGENT_LOG,),
        "It passes within seconds.",
        CONNECTION,
    ),
    "BootstrapSecretFunctional": Explanation(
        "The bootstrap kubeconfig is good enough to ask the hub for a certificate. It is followed"
        " by a second word about the agent's own connection.",
        (),
        written_on=CONNECTION,
    ),
    "BootstrapSecretUnauthorized": Explanation(
        "The hub does not accept the bootstrap token: it is wrong or has ended, is not one for"
        " joining, or the hub lacks what `knfleet init` installs.",
        (KLUSTERLET, AGENT_LOG),
        "Get a new token on the hub by `knfleet get token`, and run the join command that it prints"
        " on the cluster again; nothing has to be removed before.",
        CONNECTION,
    ),
    "BootstrapSecretError": Explanation(
        "The hub cannot be reached with the bootstrap kubeconfig: no answer, an invalid"
        " certificate, or a request that was refused.",
        (KLUSTERLET, AGENT_LOG),
        "No answer: allow connections from the cluster to the hub (`knfleet join --proxy-url`"
        " uses a proxy). Certificate: join again with --ca-file or --hub-ca-hash. Refused: the"
        " message has the hub's error.",
        CONNECTION,
    ),
    "RegistrationDriverUnsupported": Explanation(
        "The Klusterlet asks for a registration driver that the agent does not have; it goes on"
        " with the one before.",
        (KLUSTERLET, AGENT_LOG),
        "Set spec.registrationConfiguration.registrationDriver.authType of the Klusterlet to csr or"
        " grpc; grpc needs the image, or the extra `knfleet[grpc]`.",
        CONNECTION,
    ),
    "HubConnectionFunctional": Explanation(
        "The agent reaches the hub with its own certificate.", (), written_on=CONNECTION
    ),
    "HubKubeConfigSecretMissing": Explanation(
        "The agent has no certificate yet: the hub has not accepted the cluster.",
        (
            step("Which clusters wait, on the hub:", "knfleet get clusters"),
            step(
                "Their requests:",
                "kubectl get csr -l open-cluster-management.io/cluster-name=CLUSTER",
            ),
        ),
        "On the hub: `knfleet accept --clusters CLUSTER`.",
        CONNECTION,
    ),
    "HubKubeConfigError": Explanation(
        "The agent has a certificate, and the hub does not answer it.",
        (KLUSTERLET, AGENT_LOG),
        "Restore the hub or the connection to it; the agent keeps retrying. When the hub has"
        " moved, join again with its new address.",
        CONNECTION,
    ),
    "Manual": Explanation(
        "The condition was written by hand, or for a cluster on this machine by `knfleet demo`;"
        " no agent updates it.",
        (),
        written_on=("ClusterProfile: ControlPlaneHealthy",),
    ),
}
