"""What `join` puts on a cluster, and `unjoin` removes: one list, pure.

The agent may do what it does and nothing else. The account whose token the hub gets may install
Knative: that takes the right to grant what is in Knative's roles, and no more than that.
"""

import base64
from typing import Literal

from msgspec import Struct, field

from knfleet.agent import rights
from knfleet.agent.addon.session_addons import addon_rules
from knfleet.agent.work.session_works import work_rules
from knfleet.api.cluster.access import ACCESS_ACCOUNT
from knfleet.api.cluster.tunnel import TunnelMode
from knfleet.api.crds.fleet import spoke_definitions
from knfleet.api.meta import Object
from knfleet.api.operator import (
    ADDON_NAMESPACE,
    AGENT_NAMESPACE,
    BOOTSTRAP_SECRET,
    KLUSTERLET,
    KLUSTERLETS,
    WORK_GATES,
)
from knfleet.api.operator import GROUP as OPERATOR_GROUP
from knfleet.api.rbac_rules import RBAC_GROUP
from knfleet.aws.eks_arns import RegistrationRoles
from knfleet.install.access_manifests import Account, access_objects
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
from knfleet.operator.spoke_access.packaged import packaged_rights
from knfleet.operator.spoke_access.rights import SpokeRights

AGENT = "klusterlet-registration-agent"
SINGLETON = "klusterlet-agent"
EXTERNAL_SECRET = "external-managed-kubeconfig"  # noqa: S105  a name
EXTERNAL_FOLDER = "/spoke/config"
AGENT_ROLE = "knfleet:agent"
WORK_ROLE = "knfleet:agent:works"
ADDON_ROLE = "knfleet:agent:addons"
ROLE_ANNOTATION = "eks.amazonaws.com/role-arn"
"""By it EKS gives the pods of a ServiceAccount an identity in AWS."""


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
    addon_tokens: bool = False
    """Whether agents of add-ons reach the hub by tokens instead of certificates."""
    addon_token_seconds: int = 0
    """How long these tokens last, unless it is 0."""
    tunnel: TunnelMode = "auto"
    """Whether the hub reaches the cluster through the agent."""
    tunnel_services: tuple[str, ...] = ()
    """Services that the hub may reach through the agent, as namespace/name:port."""
    auth_type: str = "csr"
    """The registration driver."""
    grpc_config: bytes = b""
    """With grpc: the configuration of the gRPC client, with a token."""
    roles: RegistrationRoles | None = None
    """With awsirsa: the EKS clusters of hub and agent."""
    rights: SpokeRights = field(default_factory=packaged_rights)
    """What the hub may do on the cluster."""
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
        *([] if hosted else [named("v1", "Namespace", ADDON_NAMESPACE), *account_objects(plan)]),
        agent_account(plan),
        network_policy(plan.workload, plan.namespace, {"app": plan.workload}, [HEALTH_PORT]),
        *home_roles(plan),
        *([] if hosted else agent_roles(plan)),
        bootstrap_secret(plan),
        *external_secret(plan),
        klusterlet(plan),
        agent_deployment(plan),
    ]


def agent_account(plan: AgentInstall) -> Object:
    """The agent's ServiceAccount; with awsirsa it has the role that the hub trusts."""
    account = named("v1", "ServiceAccount", plan.workload, plan.namespace)
    if plan.roles is not None:
        annotations = {ROLE_ANNOTATION: plan.roles.managed_role_arn}
        account["metadata"]["annotations"] = annotations
    return account


def managed_objects(plan: AgentInstall) -> list[Object]:
    """With Hosted: what goes to the cluster that is managed from elsewhere."""
    klusterlets = crd_name(KLUSTERLETS.plural)
    return [
        *(each for each in spoke_definitions() if each["metadata"]["name"] != klusterlets),
        named("v1", "Namespace", plan.namespace),
        named("v1", "Namespace", ADDON_NAMESPACE),
        *account_objects(plan),
    ]


def crd_name(plural: str) -> str:
    return f"{plural}.{OPERATOR_GROUP}"


def bootstrap_secret(plan: AgentInstall) -> Object:
    """How the agent reaches a hub that does not know it yet."""
    contents = {"kubeconfig": plan.bootstrap}
    if plan.grpc_config:
        contents["config.yaml"] = plan.grpc_config
    return secret(BOOTSTRAP_SECRET, plan.namespace, contents)


def external_secret(plan: AgentInstall) -> list[Object]:
    """The kubeconfig of a cluster that is managed from elsewhere."""
    if plan.mode != "Hosted":
        return []
    return [secret(EXTERNAL_SECRET, plan.namespace, {"kubeconfig": plan.managed_kubeconfig})]


def secret(name: str, namespace: str, contents: dict[str, bytes]) -> Object:
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
        {**named(f"{RBAC_GROUP}/v1", "ClusterRole", WORK_ROLE), "rules": work_rules()},
        binding("ClusterRole", WORK_ROLE, plan.workload, plan.namespace),
        {**named(f"{RBAC_GROUP}/v1", "ClusterRole", ADDON_ROLE), "rules": addon_rules()},
        binding("ClusterRole", ADDON_ROLE, plan.workload, plan.namespace),
    ]


def account_objects(plan: AgentInstall) -> list[Object]:
    """The account whose token the hub gets, and what it may do: install Knative."""
    return [
        named("v1", "ServiceAccount", ACCESS_ACCOUNT, plan.namespace),
        *access_objects(plan.rights, Account(ACCESS_ACCOUNT, plan.namespace)),
    ]


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
    driver: Object = {"authType": plan.auth_type}
    if plan.roles is not None:
        driver["awsIrsa"] = {
            "hubClusterArn": str(plan.roles.hub),
            "managedClusterArn": str(plan.roles.managed),
        }
    registration: Object = {"registrationDriver": driver}
    if plan.annotations:
        registration["clusterAnnotations"] = plan.annotations
    of_works = [gate for gate in plan.feature_gates if gate[0] in WORK_GATES]
    others = [gate for gate in plan.feature_gates if gate[0] not in WORK_GATES]
    if others:
        registration["featureGates"] = gate_list(others)
    if plan.lifetime_seconds:
        registration["clientCertExpirationSeconds"] = plan.lifetime_seconds
    if plan.addon_tokens:
        addons: Object = {"authType": "token"}
        if plan.addon_token_seconds:
            addons["token"] = {"expirationSeconds": plan.addon_token_seconds}
        registration["addOnKubeClientRegistrationDriver"] = addons
    spec: Object = {
        "clusterName": plan.cluster,
        "deployOption": {"mode": plan.mode},
        "imagePullSpec": plan.image,
        "registrationConfiguration": registration,
        "resourceRequirement": plan.quality.requirement,
    }
    if of_works:
        spec["workConfiguration"] = {"featureGates": gate_list(of_works)}
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
    if plan.auth_type != "csr":
        arguments.append(f"--registration-auth={plan.auth_type}")
    if plan.roles is not None:
        arguments.append(f"--hub-cluster-arn={plan.roles.hub}")
        arguments.append(f"--managed-cluster-arn={plan.roles.managed}")
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
    if plan.tunnel != "auto":
        arguments.append(f"--tunnel={plan.tunnel}")
    arguments += [f"--tunnel-service={each}" for each in plan.tunnel_services]
    if plan.mode == "Hosted":
        arguments.append(f"--spoke-kubeconfig={EXTERNAL_FOLDER}/kubeconfig")
    return arguments
