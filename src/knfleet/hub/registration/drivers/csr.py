"""The controller of certificate requests: approves what may be approved, leaves the rest alone."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from knfleet.api.addon.names import ADDON_LABEL
from knfleet.api.certificate_requests import CERTIFICATES_GROUP, CSRS, GRPC_SIGNER, SIGNER
from knfleet.api.cluster.managedcluster import (
    AGENT_NAME,
    ALLOW_REREGISTRATION,
    AUTO_ACCEPTED,
    CLUSTERS,
    LEASE_NAME,
    REGISTER_GROUP,
    ManagedCluster,
)
from knfleet.api.core import LEASES
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.api.rbac_rules import READ, rule
from knfleet.api.reviews import SUBJECT_REVIEWS as REVIEWS
from knfleet.api.texts import bounded
from knfleet.hub.context import HubContext, patch_cluster
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.informers import labels_of
from knfleet.hub.registration.drivers import csr_rules
from knfleet.hub.registration.drivers.csr_rules import (
    ApprovalDecision,
    RequestProblem,
    decide,
    examine,
    requester,
)
from knfleet.hub.registration.drivers.driver import HubRegistrationDriver
from knfleet.hub.registration.lease import is_alive
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, NotFound
from knfleet.runtime.controller import Result
from knfleet.runtime.logs import log

RULES = (
    rule(CERTIFICATES_GROUP, [CSRS.plural], ["create", *READ]),
    rule(CERTIFICATES_GROUP, [f"{CSRS.plural}/approval"], ["update", "patch"]),
    rule(CERTIFICATES_GROUP, ["signers"], ["approve"], [SIGNER, GRPC_SIGNER]),
    rule(REVIEWS.group, [REVIEWS.plural], ["create"]),
)
AGAIN_SECONDS = 60.0
"""How often to look at requests that wait: the agent that holds their place may be gone."""


class ApprovalCondition(Struct, frozen=True):
    """What became of a request."""

    type: str
    reason: str
    message: str


async def approve(client: Client, manifest: Object, *, reason: str, message: str) -> None:
    """Approve a certificate request."""
    await conclude(client, manifest, ApprovalCondition("Approved", reason, message))


async def conclude(client: Client, manifest: Object, outcome: ApprovalCondition) -> None:
    """Approve or deny a certificate request in the state that we know it in."""
    status: Object = manifest.get("status") or {}
    condition = {
        "type": outcome.type,
        "status": "True",
        "reason": outcome.reason,
        "message": bounded(outcome.message),
    }
    patch: Object = {
        "metadata": {"resourceVersion": manifest["metadata"]["resourceVersion"]},
        "status": {"conditions": [*(status.get("conditions") or []), condition]},
    }
    key = Key("", manifest["metadata"]["name"])
    await client.patch(CSRS, key, patch, subresource="approval")


def concluded(manifest: Object) -> str:
    """`Approved`, `Denied` or `Failed`; empty while a request is pending."""
    status: Object = manifest.get("status") or {}
    conditions: list[Object] = status.get("conditions") or []
    return next((each["type"] for each in conditions), "")


def latest_agent(manifests: Iterable[Object]) -> str:
    """The agent of the newest request that was approved; empty when none was."""
    approved = [
        (manifest["metadata"]["creationTimestamp"], examined.agent)
        for manifest in manifests
        if concluded(manifest) == "Approved"
        and isinstance(examined := examine(manifest), csr_rules.AgentCertificateRequest)
    ]
    return max(approved, default=("", ""))[1]


class CSRApprovalController:
    """Reconciles CertificateSigningRequests."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.logged: set[str] = set()

    def watches(self) -> Sequence[Watch]:
        """Requests, the clusters that they are for, and the configuration of the hub."""
        informers = self.context.informers
        return [
            Watch(informers.requests.on_change, self.by_request),
            Watch(informers.clusters.on_change, self.by_cluster),
            Watch(informers.managers.on_change, self.by_manager),
        ]

    def by_request(self, change: StoreChange) -> Iterable[Request]:
        """A request changed; those of add-ons' agents are decided on elsewhere."""
        manifest = change.new or change.old
        if manifest is None or not labels_of(manifest).get(ADDON_LABEL):
            yield Request(HUB, change.key)

    def by_cluster(self, change: StoreChange) -> Iterable[Request]:
        """A cluster changed: what it may have may have changed as well."""
        for manifest in self.context.informers.requests.by_index("cluster", change.key.name):
            yield Request(HUB, Key.of(manifest))

    def by_manager(self, change: StoreChange) -> Iterable[Request]:
        for manifest in self.context.informers.requests.items():
            yield Request(HUB, Key.of(manifest))

    async def reconcile(self, request: Request) -> Result:
        """Decide on one request."""
        manifest = self.context.informers.requests.get(request.key)
        if manifest is None:
            self.logged.discard(request.key.name)
            return Result.never()
        examined = examine(manifest)
        if isinstance(examined, RequestProblem):
            self.log_once(manifest, examined.reason)
            return Result.never()
        cluster = self.context.informers.cluster(examined.cluster)
        try:
            if concluded(manifest):
                await self.record(cluster)
                return Result.never()
            verdict = await self.verdict(examined, manifest, cluster)
            await self.act(verdict, manifest, cluster)
        except Conflict:
            return Result.after(0.05)
        return Result.when(verdict.action != "wait", else_after=AGAIN_SECONDS)

    async def verdict(
        self,
        examined: csr_rules.AgentCertificateRequest,
        manifest: Object,
        cluster: ManagedCluster | None,
    ) -> ApprovalDecision:
        """What to do about a request."""
        return decide(
            examined,
            cluster,
            alive=cluster is not None and not examined.renews and await self.alive(cluster),
            may_renew=examined.renews and await self.may_renew(manifest),
            auto_approved=self.auto_approved(manifest),
        )

    def auto_approved(self, manifest: Object) -> frozenset[str]:
        """The users whose first requests need no person, by the way in which they ask."""
        configuration = self.context.configuration
        is_grpc = manifest["spec"]["signerName"] == GRPC_SIGNER
        return configuration.grpc_auto_approved if is_grpc else configuration.auto_approved

    async def alive(self, cluster: ManagedCluster) -> bool:
        """Whether a cluster renewed its Lease lately, by the Lease that the server has now.

        What is remembered is not enough: a hub that has just started remembers nothing.
        """
        try:
            lease = await self.client.get(LEASES, LEASE_NAME, cluster.name)
        except NotFound:
            lease = None
        now = self.context.now()
        return is_alive(
            cluster, self.context.lease_observations.observation(cluster, lease, now), now
        )

    async def may_renew(self, manifest: Object) -> bool:
        """Whether RBAC lets the one who asks renew its certificate."""
        asked: Object = manifest["spec"]
        user, groups = requester(manifest)
        is_direct = user == asked["username"]
        review: Object = {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "spec": {
                "user": user,
                "groups": list(groups),
                "uid": asked.get("uid", "") if is_direct else "",
                "extra": (asked.get("extra") or {}) if is_direct else {},
                "resourceAttributes": {
                    "group": REGISTER_GROUP,
                    "resource": "managedclusters",
                    "subresource": "clientcertificates",
                    "verb": "renew",
                },
            },
        }
        answer = await self.client.create(REVIEWS, review)
        return bool(answer["status"].get("allowed"))

    async def act(
        self, verdict: ApprovalDecision, manifest: Object, cluster: ManagedCluster | None
    ) -> None:
        """Do what was decided."""
        if verdict.action == "wait" or cluster is None:
            self.log_once(manifest, verdict.message)
            return
        if verdict.accepts:
            annotations = {AUTO_ACCEPTED: timestamp(self.context.now())}
            patch: Object = {
                "metadata": {"annotations": annotations},
                "spec": {"hubAcceptsClient": True},
            }
            await patch_cluster(self.client, cluster, patch)
        type_ = "Approved" if verdict.action == "approve" else "Denied"
        await conclude(
            self.client, manifest, ApprovalCondition(type_, verdict.reason, verdict.message)
        )
        if type_ == "Denied":
            self.context.record_warning(cluster, verdict.reason, verdict.message)

    async def record(self, cluster: ManagedCluster | None) -> None:
        """Remember on the cluster which agent last got a certificate."""
        if cluster is None:
            return
        mine = self.context.informers.requests.by_index("cluster", cluster.name)
        agent = latest_agent(mine)
        annotations = cluster.metadata.annotations
        if not agent or annotations.get(AGENT_NAME) == agent:
            return
        changed: Object = {AGENT_NAME: agent}
        if ALLOW_REREGISTRATION in annotations and AGENT_NAME in annotations:
            changed[ALLOW_REREGISTRATION] = None
        key = Key("", cluster.name)
        await self.client.patch(CLUSTERS, key, {"metadata": {"annotations": changed}})

    def log_once(self, manifest: Object, reason: str) -> None:
        """Say in the log why a request is left alone, once."""
        name = manifest["metadata"]["name"]
        if name not in self.logged:
            self.logged.add(name)
            log.info("certificate request left pending", request=name, reason=reason)


CONTROLLER = HubController("certificaterequest", CSRApprovalController, RULES)
DRIVER = HubRegistrationDriver("csr", CONTROLLER)
