"""Why the cluster of a custom resource cannot be used: the condition TargetClusterResolved."""

from knfleet.clusters import access_errors
from knfleet.view.reasons.explanation import (
    BOTH,
    CONDITIONS,
    DOCTOR,
    DOCTOR_BOTH,
    OPERATOR_LOG,
    PROFILE,
    Explanation,
    step,
)

WHERE = (f"{BOTH}: TargetClusterResolved and Ready",)
PROVIDER_FILE = step(
    "Which access providers the operator knows, by name and command:",
    "kubectl get configmap -n knative-operator clusterprofile-provider-file -o yaml",
)

TARGET: dict[str, Explanation] = {
    access_errors.MULTICLUSTER_DISABLED: Explanation(
        "The custom resource names a ClusterProfile, and the operator runs without a provider file,"
        " so it installs on its own cluster only.",
        (
            step(
                "Whether the flag --clusterprofile-provider-file is among the arguments:",
                "kubectl get deploy -n knative-operator knative-operator -o yaml",
            ),
        ),
        "Install the operator with multi-cluster support: `knfleet manifests --multicluster`, the"
        " chart's value `multicluster.enabled`, or the flag --clusterprofile-provider-file. To"
        " install on the operator's own cluster instead, delete the custom resource and create it"
        " without spec.clusterProfileRef.",
        WHERE,
    ),
    access_errors.ACCESS_PROVIDER_NOT_CONFIGURED: Explanation(
        "The provider file is missing, cannot be read or lists no provider, so no cluster can be"
        " accessed. The message says which; installations on the operator's own cluster go on.",
        (PROVIDER_FILE, OPERATOR_LOG),
        "Correct the file, or add a provider to it: a name that profiles offer under"
        " status.accessProviders, and the plugin to run. The file is read again within seconds;"
        " nothing needs a restart.",
        WHERE,
    ),
    access_errors.CLUSTER_PROFILE_NOT_FOUND: Explanation(
        "There is no ClusterProfile of that namespace and name on the hub, or the ClusterProfile"
        " API is not installed there.",
        (
            step("Which profiles there are, and how they are spelled:", "knfleet status -o wide"),
            step("The same by kubectl:", "kubectl get clusterprofiles -A"),
            step(
                "Whether the cluster's set is bound there, which makes profiles appear:",
                "kubectl get managedclustersetbindings -A",
            ),
        ),
        "Correct the reference (a custom resource's spec.clusterProfileRef cannot be changed:"
        " delete it and create it anew), create the profile, or bind the cluster's set in the"
        " namespace: `knfleet clusterset bind global --namespace PROFILE_NAMESPACE`. The operator"
        " continues when the profile appears.",
        WHERE,
    ),
    access_errors.CLUSTER_PROFILE_NOT_READY: Explanation(
        "The profile's condition ControlPlaneHealthy is not True: its cluster manager reports"
        " that the cluster is down, or has not reported yet. Nothing is written to such a"
        " cluster.",
        (PROFILE, DOCTOR, DOCTOR_BOTH),
        "Bring the cluster or its agent back; the installation goes on within seconds of the"
        " condition turning True. A profile that was written by hand needs the condition set by"
        " hand (see `docs/multicluster.md`).",
        WHERE,
    ),
    access_errors.CLUSTER_PROFILE_UNAVAILABLE: Explanation(
        "The profile cannot be used: it has no access provider, none that the provider file knows,"
        " or fields that make no sense; or the hub does not answer for profiles at the moment.",
        (PROFILE, PROVIDER_FILE, CONDITIONS),
        "Make one name match: an entry of the profile's status.accessProviders and a provider of"
        " the file. On a hub made by `knfleet init` the agent provides access after it has"
        " joined; when it is missing, `knfleet doctor CLUSTER` says why.",
        WHERE,
    ),
    access_errors.ACCESS_PROVIDER_FAILED: Explanation(
        "The credential plugin gave no credential: the program is missing, failed, took longer than"
        " allowed, or printed something that is no ExecCredential.",
        (
            CONDITIONS,
            step(
                "Whether the Secret is there that the plugin `secretreader` reads, named as the"
                " profile, with the key token:",
                "kubectl describe secret -n PROFILE_NAMESPACE PROFILE_NAME",
            ),
            OPERATOR_LOG,
        ),
        "Put right what the message names: the plugin's command and image volume, the right to"
        " read the Secret, or the Secret's content. The plugin runs again within 15 s, and at once"
        " when the profile or the provider file changes.",
        WHERE,
    ),
    access_errors.REMOTE_CLIENT_CREATION_FAILED: Explanation(
        "There is a credential, and the cluster cannot be used with it: the address does not"
        " answer, TLS does not fit, the credential is refused or lacks rights, Kubernetes there is"
        " too old, or another cluster answers than the one that was installed on.",
        (
            CONDITIONS,
            PROFILE,
            DOCTOR,
            OPERATOR_LOG,
        ),
        "No answer: allow connections from the hub to the API server, or correct the server or"
        " proxy-url in the profile (`knfleet join --external-server-url` sets the address at"
        " which the hub reaches a cluster). TLS: correct certificate-authority-data. Refused or"
        " lacking rights: renew the token, or grant what the message lists. Another cluster:"
        " correct the profile; when the cluster was replaced on purpose, remove the annotation"
        " knfleet.dev/target-uid from the custom resource. It is tried again within 10 s.",
        WHERE,
    ),
    access_errors.REMOTE_CLUSTER_STALE: Explanation(
        "Credentials or address of the cluster changed, and the new connection has not answered"
        " yet; or the address now leads to another cluster than before.",
        (PROFILE, CONDITIONS),
        "When it stays for more than half a minute, see whether the new address and the new token"
        " are right; otherwise it passes without action.",
        WHERE,
    ),
    access_errors.CLUSTER_PROVIDER_CLOSED: Explanation(
        "The operator is shutting down and takes no new connections.",
        (
            step(
                "Whether the operator is being restarted:",
                "kubectl get pods -n knative-operator",
            ),
            OPERATOR_LOG,
        ),
        "It passes when the next operator has taken over. When none comes, see why its pod does not"
        " start.",
        WHERE,
    ),
}
