"""What `join` puts on a cluster, and `unjoin` removes: one list, pure.

The agent may do what it does and nothing else. The account whose token the hub gets may install
Knative: that takes the right to grant what is in Knative's roles, and no more than that.
"""

import base64
from typing import Literal

from msgspec import Struct

from knfleet.agent import rights
from knfleet.api.cluster.access import ACCESS_ACCOUNT
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Object
from knfleet.api.operator import (
    ADDON_NAMESPACE,
    AGENT_NAMESPACE,
    BOOTSTRAP_SECRET,
    KLUSTERLET,
    KLUSTERLETS,
)
from knfleet.api.operator import GROUP as OPERATOR_GROUP
from knfleet.api.rbac_rules import RBAC_GROUP, rule
from knfleet.install.deployments import (
    AGENT_MEMORY,
    HEALTH_PORT,
    PodProfile,
    deployment,
    gate_list,
    network_policy,
    probes,
)
from knfleet.install.hub_manifests import named
from knfleet.operator.rights import local_rules

AGENT = "klusterlet-registration-agent"
SINGLETON = "klusterlet-agent"
EXTERNAL_SECRET = "external-managed-kubeconfig"  # noqa: S105  a name
EXTERNAL_FOLDER = "/spoke/config"
AGENT_ROLE = "knfleet:agent"
ACCESS_ROLE = "knfleet:access"
LOOKING = [
    rule("", ["events", "pods"], ["get", "list"]),
    rule("apps", ["replicasets"], ["get", "list"]),
]
"""What `knfleet status` and the dashboard show of workloads that are not well."""


class AgentInstall(Struct, frozen=True):
    """How a cluster is to be joined."""

    cluster: str
    bootstrap: bytes
    """The bootstrap kubeconfig."""
    image: str
    mode: Literal["Default", "Singleton", "Hosted"] = "Default"
    klusterlet: str = KLUSTERLET
    namespace: str = AGENT_NAMESPACE
    quality: PodProfile = PodProfile()
    annotations: dict[str, str] = {}
    lifetime_seconds: int = 0
    external_urls: tuple[str, ...] = ()
    feature_gates: tuple[tuple[str, bool], ...] = ()
    managed_kubeconfig: bytes = b""
    """With Hosted: how the agent reaches the cluster."""

    def __repr__(self) -> str:
        return f"AgentInstall({self.cluster!r}, {self.mode!r})"

    @property
    def workload(self) -> str:
        """The name of the agent's Deployment and ServiceAccount."""
        return SINGLETON if self.mode == "Singleton" else AGENT


def home_objects(plan: AgentInstall) -> list[Object]:
    """What goes to the cluster that the agent runs on; the CRDs come first."""
    hosted = plan.mode == "Hosted"
    crds = spoke_definitions()
    if hosted:
        crds = [each for each in crds if each["metadata"]["name"] == crd_name(KLUSTERLETS.plural)]
    return [
        *crds,
        named("v1", "Namespace", plan.namespace),
        *([] if hosted else [named("v1", "Namespace", ADDON_NAMESPACE), *access_objects(plan)]),
        named("v1", "ServiceAccount", plan.workload, plan.namespace),
        network_policy(plan.workload, plan.namespace, {"app": plan.workload}, [HEALTH_PORT]),
        *home_roles(plan),
        *([] if hosted else agent_roles(plan)),
        secret(BOOTSTRAP_SECRET, plan.namespace, {"kubeconfig": plan.bootstrap}),
        *external_secret(plan),
        klusterlet(plan),
        agent_deployment(plan),
    ]


def managed_objects(plan: AgentInstall) -> list[Object]:
    """With Hosted: what goes to the cluster that is managed from elsewhere."""
    klusterlets = crd_name(KLUSTERLETS.plural)
    return [
        *(each for each in spoke_definitions() if each["metadata"]["name"] != klusterlets),
        named("v1", "Namespace", plan.namespace),
        named("v1", "Namespace", ADDON_NAMESPACE),
        *access_objects(plan),
    ]


def crd_name(plural: str) -> str:
    """The name of a CRD of the operator's group."""
    return f"{plural}.{OPERATOR_GROUP}"


def external_secret(plan: AgentInstall) -> list[Object]:
    """The kubeconfig of a cluster that is managed from elsewhere."""
    if plan.mode != "Hosted":
        return []
    return [secret(EXTERNAL_SECRET, plan.namespace, {"kubeconfig": plan.managed_kubeconfig})]


def secret(name: str, namespace: str, contents: dict[str, bytes]) -> Object:
    """A Secret."""
    data = {key: base64.b64encode(value).decode() for key, value in contents.items()}
    return {**named("v1", "Secret", name, namespace), "type": "Opaque", "data": data}


def home_roles(plan: AgentInstall) -> list[Object]:
    """What the agent may do beside its own pod: keep its identity, tell how it is."""
    own = rights.klusterlet_rules(plan.klusterlet)
    name = f"{AGENT_ROLE}:{plan.klusterlet}"
    return [
        {
            **named(f"{RBAC_GROUP}/v1", "Role", AGENT_ROLE, plan.namespace),
            "rules": rights.home_rules(),
        },
        binding("Role", AGENT_ROLE, plan.workload, plan.namespace),
        {**named(f"{RBAC_GROUP}/v1", "ClusterRole", name), "rules": own},
        binding("ClusterRole", name, plan.workload, plan.namespace),
    ]


def agent_roles(plan: AgentInstall) -> list[Object]:
    """What the agent may see of the cluster, and the namespaces that it makes there."""
    rules = rights.managed_rules()
    return [
        {**named(f"{RBAC_GROUP}/v1", "ClusterRole", AGENT_ROLE), "rules": rules},
        binding("ClusterRole", AGENT_ROLE, plan.workload, plan.namespace),
    ]


def access_objects(plan: AgentInstall) -> list[Object]:
    """The account whose token the hub gets, and what it may do."""
    return [
        named("v1", "ServiceAccount", ACCESS_ACCOUNT, plan.namespace),
        {**named(f"{RBAC_GROUP}/v1", "ClusterRole", ACCESS_ROLE), "rules": access_rules()},
        binding("ClusterRole", ACCESS_ROLE, ACCESS_ACCOUNT, plan.namespace),
    ]


def access_rules() -> list[Object]:
    """What the hub may do on the cluster: install Knative, and say why a pod of it fails."""
    return [*local_rules(), *LOOKING]


def binding(kind: str, role: str, account: str, namespace: str) -> Object:
    """Gives an account a role of the same place."""
    place = namespace if kind == "Role" else ""
    return {
        **named(f"{RBAC_GROUP}/v1", f"{kind}Binding", role, place),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def klusterlet(plan: AgentInstall) -> Object:
    """The Klusterlet that says how the agent is installed."""
    registration: Object = {"registrationDriver": {"authType": "csr"}}
    if plan.annotations:
        registration["clusterAnnotations"] = plan.annotations
    if plan.feature_gates:
        registration["featureGates"] = gate_list(plan.feature_gates)
    if plan.lifetime_seconds:
        registration["clientCertExpirationSeconds"] = plan.lifetime_seconds
    spec: Object = {
        "clusterName": plan.cluster,
        "deployOption": {"mode": plan.mode},
        "imagePullSpec": plan.image,
        "registrationConfiguration": registration,
        "resourceRequirement": plan.quality.requirement,
    }
    if plan.mode != "Hosted":
        spec["namespace"] = plan.namespace
    if plan.external_urls:
        spec["externalServerURLs"] = [{"url": url} for url in plan.external_urls]
    meta = named(KLUSTERLETS.api_version, KLUSTERLETS.kind, plan.klusterlet)
    return {**meta, "spec": spec}


def agent_deployment(plan: AgentInstall) -> Object:
    """The agent as a workload."""
    container: Object = {
        "name": "agent",
        "args": agent_arguments(plan),
        "env": [{"name": "KNFLEET_KLUSTERLET", "value": plan.klusterlet}],
        **probes("/healthz", "/healthz"),
    }
    if plan.mode == "Hosted":
        container["volumeMounts"] = [
            {"name": "spoke", "mountPath": EXTERNAL_FOLDER, "readOnly": True}
        ]
    resources = plan.quality.resources(AGENT_MEMORY)
    made = deployment(plan.workload, plan.namespace, container, plan.image, resources)
    if plan.mode == "Hosted":
        volume: Object = {"name": "spoke", "secret": {"secretName": EXTERNAL_SECRET}}
        made["spec"]["template"]["spec"]["volumes"] = [volume]
    return made


def agent_arguments(plan: AgentInstall) -> list[str]:
    """The agent's command line."""
    arguments = [
        "agent",
        f"--spoke-cluster-name={plan.cluster}",
        f"--listen=:{HEALTH_PORT}",
    ]
    if plan.external_urls:
        arguments.append(f"--spoke-external-server-urls={','.join(plan.external_urls)}")
    if plan.lifetime_seconds:
        arguments.append(f"--client-cert-expiration-seconds={plan.lifetime_seconds}")
    if plan.feature_gates:
        words = {True: "true", False: "false"}
        pairs = ",".join(f"{name}={words[on]}" for name, on in plan.feature_gates)
        arguments.append(f"--feature-gates={pairs}")
    if plan.annotations:
        pairs = ",".join(f"{name}={value}" for name, value in plan.annotations.items())
        arguments.append(f"--cluster-annotations={pairs}")
    if plan.mode == "Hosted":
        arguments.append(f"--spoke-kubeconfig={EXTERNAL_FOLDER}/kubeconfig")
    return arguments
