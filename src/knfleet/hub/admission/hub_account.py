"""What the hub's own account cannot do, whatever its roles let it: the API server enforces it.

RBAC lets the hub bind one role wherever it is needed, and approve every request of one signer;
these rules leave it what it needs of both. CEL cannot read the subject in a certificate request:
so the hub makes no requests, has no other account to make them with, and approves only those of
agents and of accounts that may ask to join.
"""

from msgspec.structs import replace

from knfleet.api.addon.names import ADDON_LABEL, TOKEN_LABEL
from knfleet.api.certificate_requests import CERTIFICATES_GROUP, CSR_USER, GRPC_SIGNER, SIGNER
from knfleet.api.cluster.managedcluster import (
    CLUSTER_NAME_LABEL,
    GROUP,
    GROUP_PREFIX,
    MAPPED_PREFIX,
)
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGER, CLUSTER_MANAGERS, GRPC_SERVER_USER, HUB_ROLE
from knfleet.api.rbac_rules import RBAC_GROUP
from knfleet.hub.admission.policies import AdmissionPolicy, PolicyCheck, is_bootstrap
from knfleet.hub.profiles.rights import TOKENS_ROLE

TOKEN_BINDING = AdmissionPolicy(
    name="knfleet-profile-tokens",
    group=RBAC_GROUP,
    resources=("rolebindings",),
    # Parameters that are missing mean no before conditions are asked: hence the name, and below
    # the rule that no other binding leads to the role.
    names=(TOKENS_ROLE,),
    version="v1",
    operations=("CREATE",),
    parameters={"apiVersion": f"{GROUP}/v1beta2", "kind": "ManagedClusterSetBinding"},
    rules=(
        PolicyCheck("params != null", "Secrets are touched only where a set of clusters is bound"),
    ),
)
OTHER_BINDINGS = AdmissionPolicy(
    name="knfleet-profile-tokens-name",
    group=RBAC_GROUP,
    resources=("rolebindings", "clusterrolebindings"),
    version="v1",
    operations=("CREATE",),
    only_if=(("tokens", f"object.roleRef.name == '{TOKENS_ROLE}'"),),
    rules=(
        PolicyCheck(
            "request.resource.resource == 'rolebindings'"
            f" && object.metadata.name == '{TOKENS_ROLE}'",
            f"{TOKENS_ROLE} is bound only in a namespace, by a RoleBinding of the same name",
        ),
    ),
)

TOKEN_TYPES = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token")
MANAGER = "params.?spec.registrationConfiguration"
ASKED_BY = f"object.metadata.?annotations[?'{CSR_USER}'].orValue('')"
ASKED_BEFORE = f"(oldObject == null ? '' : {ASKED_BY.replace('object.', 'oldObject.')})"
REQUESTER = f"(object.spec.username == '{GRPC_SERVER_USER}' ? {ASKED_BY} : object.spec.username)"
"""Who asks for a certificate; the gRPC server asks for others, and says for whom."""
IS_AGENT = (
    f"({REQUESTER}.startsWith('{GROUP_PREFIX}' + object.metadata.labels['{CLUSTER_NAME_LABEL}']"
    f" + ':') || (object.spec.username == object.metadata.labels['{CLUSTER_NAME_LABEL}']"
    f" && ('{MAPPED_PREFIX}' + object.spec.username) in object.spec.?groups.orValue([])))"
)
"""By its name, or as a cloud maps the role of its cluster: by name and group."""
LABELS = "object.metadata.?labels.orValue({})"
IS_CUSTOM = "!object.spec.signerName.startsWith('kubernetes.io/')"
IS_ADDON_AGENT = (
    f"{LABELS}[?'{ADDON_LABEL}'].orValue('') != ''"
    f" && {LABELS}[?'{CLUSTER_NAME_LABEL}'].orValue('') != '' && {IS_AGENT}"
)
"""The agent of the cluster asks for one of its add-ons."""
CLUSTER_NAMESPACE = (
    f"namespaceObject.metadata.?labels[?'{CLUSTER_NAME_LABEL}'].orValue('')"
    " == namespaceObject.metadata.name"
)
OWN_ALONE = ("signers", "certificatesigningrequests/approval", "certificatesigningrequests/status")
ACCOUNT_TOKENS = "serviceaccounts/token"
TOKEN_RULE = (
    f"each.resources == ['{ACCOUNT_TOKENS}'] && (each.verbs == ['subscribe']"
    " || (size(each.?resourceNames.orValue([])) > 0"
    " && each.resourceNames.all(name, name.endsWith('-agent'))))"
)
"""The verb `subscribe` means nothing to the API server; the gRPC server asks for it."""
IS_NAMED = (
    f"{REQUESTER} in {MANAGER}.autoApproveUsers.orValue([])"
    f" || {MANAGER}.registrationDrivers.orValue([]).exists("
    f"each, {REQUESTER} in each.?csr.autoApprovedIdentities.orValue([])"
    f" || {REQUESTER} in each.?grpc.autoApprovedIdentities.orValue([]))"
)


ASKING_FOR_OTHERS = AdmissionPolicy(
    name="knfleet-csr-user",
    group=CERTIFICATES_GROUP,
    resources=(
        "certificatesigningrequests",
        "certificatesigningrequests/approval",
        "certificatesigningrequests/status",
    ),
    only_if=(("annotated", f"{ASKED_BY} != {ASKED_BEFORE}"),),
    rules=(
        PolicyCheck(
            f"oldObject == null && request.userInfo.username == '{GRPC_SERVER_USER}'",
            f"only the gRPC server sets the annotation {CSR_USER}, when it creates a request",
        ),
    ),
)
"""An annotation by which a user asks in the name of another is nobody's but the server's."""


Conditions = tuple[tuple[str, str], ...]


def no_other_identity(by_hub: Conditions) -> tuple[AdmissionPolicy, ...]:
    """The hub asks for no certificates, and makes no tokens with which it could ask."""
    return (
        AdmissionPolicy(
            name="knfleet-hub-requests",
            group=CERTIFICATES_GROUP,
            resources=("certificatesigningrequests",),
            operations=("CREATE",),
            only_if=by_hub,
            rules=(PolicyCheck("false", "the hub approves certificate requests, and makes none"),),
        ),
        AdmissionPolicy(
            name="knfleet-hub-tokens",
            group="",
            resources=("secrets",),
            only_if=by_hub,
            rules=(
                PolicyCheck(
                    f"!(object.?type.orValue('') in {list(TOKEN_TYPES)})",
                    "the hub makes no tokens of accounts, nor for joining",
                ),
            ),
        ),
        AdmissionPolicy(
            name="knfleet-hub-account-tokens",
            group="",
            resources=("serviceaccounts/token",),
            operations=("CREATE",),
            only_if=by_hub,
            rules=(
                PolicyCheck("false", "the hub lets agents have tokens of accounts, and makes none"),
            ),
        ),
        AdmissionPolicy(
            name="knfleet-hub-signatures",
            group=CERTIFICATES_GROUP,
            resources=("certificatesigningrequests/status",),
            operations=("UPDATE",),
            only_if=by_hub,
            rules=(
                PolicyCheck(
                    f"object.spec.signerName == '{GRPC_SIGNER}'"
                    f" || ({IS_CUSTOM} && {IS_ADDON_AGENT})",
                    f"the hub signs only requests to {GRPC_SIGNER}, and those of add-ons' agents to"
                    " signers of their own",
                ),
            ),
        ),
    )


def no_grants(by_hub: Conditions) -> tuple[AdmissionPolicy, ...]:
    """The hub gives nobody its own rights, and lets agents have tokens only of add-ons' accounts.

    RBAC lets it grant what it has; these rules are about its account, not about those it grants to.
    """
    marked = f"[?'{TOKEN_LABEL}'].orValue('') == 'true'"
    return (
        AdmissionPolicy(
            name="knfleet-hub-bindings",
            group=RBAC_GROUP,
            resources=("rolebindings", "clusterrolebindings"),
            only_if=by_hub,
            rules=(
                PolicyCheck(f"object.roleRef.name != '{HUB_ROLE}'", f"{HUB_ROLE} is the hub's own"),
            ),
        ),
        AdmissionPolicy(
            name="knfleet-hub-roles",
            group=RBAC_GROUP,
            resources=("roles", "clusterroles"),
            only_if=by_hub,
            rules=(
                PolicyCheck(
                    "object.?rules.orValue([]).all(each, !each.?resources.orValue([]).exists("
                    f"name, name in {list(OWN_ALONE)}))",
                    "the hub lets nobody approve or sign certificate requests",
                ),
                PolicyCheck(
                    "object.?rules.orValue([]).all(each, !each.?resources.orValue([]).exists("
                    f"name, name == '{ACCOUNT_TOKENS}') || (request.resource.resource == 'roles'"
                    f" && {TOKEN_RULE} && {CLUSTER_NAMESPACE}))",
                    "the hub lets agents have tokens only of add-ons' accounts in the namespace of"
                    " their cluster",
                ),
            ),
        ),
        AdmissionPolicy(
            name="knfleet-hub-accounts",
            group="",
            resources=("serviceaccounts",),
            operations=("CREATE", "UPDATE", "DELETE"),
            only_if=by_hub,
            rules=(
                PolicyCheck(
                    f"{CLUSTER_NAMESPACE} && (object == null || {LABELS}{marked}) && (oldObject =="
                    f" null || {LABELS.replace('object', 'oldObject')}{marked})",
                    "the hub writes only accounts of add-ons' agents in namespaces of clusters",
                ),
            ),
        ),
    )


def approval(by_hub: Conditions) -> tuple[AdmissionPolicy, ...]:
    """Which requests the hub may approve: of one signer, of a cluster, of those who may ask."""
    approving = AdmissionPolicy(
        name="knfleet-hub-approval",
        group=CERTIFICATES_GROUP,
        resources=("certificatesigningrequests/approval",),
        operations=("UPDATE",),
        only_if=by_hub,
        rules=(
            PolicyCheck(
                f"{LABELS}[?'{CLUSTER_NAME_LABEL}'].orValue('') != ''"
                f" && (object.spec.signerName in {[SIGNER, GRPC_SIGNER]}"
                f" || ({IS_CUSTOM} && {IS_ADDON_AGENT}))",
                f"the hub approves only requests to {SIGNER} or {GRPC_SIGNER} with label"
                f" {CLUSTER_NAME_LABEL}, and those of add-ons' agents to signers of their own",
            ),
        ),
    )
    asking = PolicyCheck(
        f"{IS_AGENT} || {is_bootstrap(REQUESTER)} || {IS_NAMED}",
        message_expression=(
            f"'the hub does not approve what ' + {REQUESTER} + ' asks for: it is neither an agent"
            " of the cluster, nor an account for joining, nor named as one by the ClusterManager'"
        ),
    )
    requesters = replace(
        approving,
        name="knfleet-hub-requesters",
        # Others' requests, such as those of nodes, must not depend on a kind of ours.
        labelled=CLUSTER_NAME_LABEL,
        parameters={"apiVersion": CLUSTER_MANAGERS.api_version, "kind": CLUSTER_MANAGERS.kind},
        parameter=CLUSTER_MANAGER,
        rules=(asking,),
    )
    return approving, requesters


def hub_policies(namespace: str) -> list[Object]:
    """All rules for the hub in a namespace with their bindings, ready to be applied."""
    user = f"system:serviceaccount:{namespace}:{CLUSTER_MANAGER}"
    by_hub = (("hub", f"request.userInfo.username == '{user}'"),)
    made = (
        TOKEN_BINDING,
        OTHER_BINDINGS,
        ASKING_FOR_OTHERS,
        *no_other_identity(by_hub),
        *no_grants(by_hub),
        *approval(by_hub),
    )
    return [manifest for policy in made for manifest in policy.manifests()]
