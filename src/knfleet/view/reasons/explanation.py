"""The form in which reasons are explained: meaning, how to find the cause, what fixes it.

Words in capitals in a command stand for names: KIND, NAMESPACE and NAME of a custom resource,
PROFILE_NAMESPACE and PROFILE_NAME of its ClusterProfile, CLUSTER for a ManagedCluster, SPOKE for
the context of the cluster itself.
"""

from msgspec import Struct


class ExplanationStep(Struct, frozen=True):
    """One thing to look at, and the command that shows it."""

    text: str
    command: str = ""


class Explanation(Struct, frozen=True, rename="camel"):
    """What a reason means, and what to do about it."""

    meaning: str
    find: tuple[ExplanationStep, ...] = ()
    """How to find the cause, the likeliest first; empty where there is nothing to find."""
    fix: str = "Nothing needs to be done."
    written_on: tuple[str, ...] = ()
    """Kinds, with the condition type or `Event`."""


def step(text: str, command: str = "") -> ExplanationStep:
    """One thing to look at."""
    return ExplanationStep(text, command)


BOTH = "KnativeServing, KnativeEventing"
STATUS = step(
    "Status of each step, with details from the target:", "knfleet status KIND/NAMESPACE/NAME"
)
CONDITIONS = step(
    "The whole message, with what was tried and what came back:",
    "kubectl get KIND -n NAMESPACE NAME -o yaml",
)
PROFILE = step(
    "The profile with its conditions and access providers:",
    "kubectl get clusterprofile -n PROFILE_NAMESPACE PROFILE_NAME -o yaml",
)
DOCTOR = step("Diagnosis of the cluster, from the hub:", "knfleet doctor CLUSTER")
DOCTOR_BOTH = step(
    "The same, with the agent and its log on the cluster itself:",
    "knfleet doctor CLUSTER --spoke-context SPOKE",
)
OPERATOR_LOG = step(
    "The operator's log (on a hub made by `knfleet init`, that of deploy/cluster-manager in"
    " namespace open-cluster-management):",
    "kubectl logs -n knative-operator deploy/knative-operator",
)
HUB_LOG = step(
    "The hub's log:",
    "kubectl logs -n open-cluster-management deploy/cluster-manager",
)
AGENT_LOG = step(
    "The agent's log, on the cluster:",
    "kubectl --context SPOKE logs -n open-cluster-management-agent"
    " deploy/klusterlet-registration-agent",
)
