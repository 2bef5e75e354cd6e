"""What the hub's own account cannot do, whatever its roles let it: the API server enforces it.

RBAC lets the hub bind one role wherever it is needed, and approve every request of one signer;
these rules leave it what it needs of both. CEL cannot read the subject in a certificate request:
so the hub makes no requests, has no other account to make them with, and approves only those of
agents and of accounts that may ask to join.
"""

from msgspec.structs import replace

from knfleet.api.certificate_requests import CERTIFICATES_GROUP, SIGNER
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL, GROUP, GROUP_PREFIX
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGER, CLUSTER_MANAGERS
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
REQUESTER = "object.spec.username"
IS_AGENT = (
    f"{REQUESTER}.startsWith('{GROUP_PREFIX}' + object.metadata.labels['{CLUSTER_NAME_LABEL}']"
    " + ':')"
)
IS_NAMED = (
    f"{REQUESTER} in {MANAGER}.autoApproveUsers.orValue([])"
    f" || {MANAGER}.registrationDrivers.orValue([]).exists("
    f"each, {REQUESTER} in each.?csr.autoApprovedIdentities.orValue([]))"
)


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
                f"object.spec.signerName == '{SIGNER}' && object.metadata.?labels.orValue({{}})"
                f"[?'{CLUSTER_NAME_LABEL}'].orValue('') != ''",
                f"the hub approves only requests to {SIGNER} with label {CLUSTER_NAME_LABEL}",
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
    made = (TOKEN_BINDING, OTHER_BINDINGS, *no_other_identity(by_hub), *approval(by_hub))
    return [manifest for policy in made for manifest in policy.manifests()]
