"""Registration by AWS roles: an accepted cluster gets a role and an EKS access entry.

There is no certificate request: acceptance is `hubAcceptsClient` alone. The annotation of what was
granted is written before anything is made, and removed after everything is gone, so that a hub
which is killed in between knows what there may be.
"""

import time
from collections.abc import Iterable, Sequence

from msgspec import Struct

from knfleet.api.aws_registration import AWS_ACCESS, AWS_ROLE_ACCESS, HubAwsIrsa, tags_of
from knfleet.api.cluster.managedcluster import (
    AUTO_ACCEPTED,
    CLUSTERS,
    MAPPED_PREFIX,
    ManagedCluster,
)
from knfleet.api.conditions import StandardCondition, find, put
from knfleet.api.core import NAMESPACES
from knfleet.api.knative.conditions import Status, timestamp
from knfleet.api.meta import Object, Request
from knfleet.api.operator import AUTO_APPROVAL_GATE
from knfleet.api.schema import decode
from knfleet.api.texts import bounded
from knfleet.aws.access_grants import AccessGrant, AccessGrants, GrantConflict
from knfleet.aws.aws_errors import AwsError
from knfleet.aws.eks_arns import RegistrationRoles
from knfleet.hub.context import HubContext, cluster_request, patch_cluster, plain
from knfleet.hub.hub_controller import HubController, Watch
from knfleet.hub.registration.drivers.aws_role_rules import (
    RoleDecision,
    decide_role,
    record_of,
    recorded_roles,
)
from knfleet.hub.registration.drivers.driver import DriverCleanUpFailed, HubRegistrationDriver
from knfleet.kube.cache.informer import StoreChange
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Conflict, NotFound
from knfleet.runtime.controller import Result

CHECK_SECONDS = 3600.0
"""So often is what there is in AWS compared, in case that another tool changed it."""
SYSTEM_NAMESPACE = "kube-system"
"""Its uid tells this cluster from any other."""


class GrantedAccess(Struct, frozen=True):
    """What a cluster was last given."""

    uid: str
    record: str
    at: float


class AwsRoleController:
    """Reconciles the access of ManagedClusters that register by AWS roles."""

    def __init__(self, context: HubContext) -> None:
        self.context = context
        self.client = context.client
        self.granted: dict[str, GrantedAccess] = {}

    def watches(self) -> Sequence[Watch]:
        """Clusters, and the configuration of the hub."""
        informers = self.context.informers
        return [
            Watch(informers.clusters.on_change, self.by_cluster),
            Watch(informers.managers.on_change, self.by_manager),
        ]

    def by_cluster(self, change: StoreChange) -> Iterable[Request]:
        yield cluster_request(change.key.name)

    def by_manager(self, change: StoreChange) -> Iterable[Request]:
        """The configuration changed: it says who is accepted."""
        if change.old is None or change.old.get("spec") != (change.new or {}).get("spec"):
            clusters = self.context.informers.clusters
            yield from (cluster_request(key.name) for key in list(clusters.store.objects))

    async def reconcile(self, request: Request) -> Result:
        """See to one cluster."""
        name = request.key.name
        cluster = self.context.informers.cluster(name)
        if cluster is None or cluster.metadata.deleting:
            self.granted.pop(name, None)
            return Result.never()
        decision = self.decide(cluster)
        if decision.wish == "nothing" or (decision.wish == "grant" and self.is_granted(cluster)):
            return Result.after(CHECK_SECONDS) if decision.wish == "grant" else Result.never()
        try:
            async with self.context.aws.exclusive(name):
                return await self.act(name)
        except Conflict:
            return Result.after(0.05)

    def decide(self, cluster: ManagedCluster) -> RoleDecision:
        """What to do about a cluster."""
        configuration = self.context.configuration
        approves = configuration.is_enabled(AUTO_APPROVAL_GATE, default=False)
        driver = configuration.manager.aws_irsa
        return decide_role(cluster, driver, auto_approves=approves)

    def is_granted(self, cluster: ManagedCluster) -> bool:
        """Whether a cluster got its access, and that was reported, not long ago."""
        known = self.granted.get(cluster.name)
        condition = find(cluster.status.conditions, AWS_ROLE_ACCESS)
        return (
            known is not None
            and known.uid == cluster.metadata.uid
            and known.record == cluster.metadata.annotations.get(AWS_ACCESS)
            and condition is not None
            and condition.status == "True"
            and time.monotonic() - known.at < CHECK_SECONDS
        )

    async def act(self, name: str) -> Result:
        """Do what is to be done about a cluster in the state that the server has.

        What we remember is not enough: a cluster that has just been denied must not get a role.
        """
        try:
            cluster = decode(await self.client.get(CLUSTERS, name), ManagedCluster)
        except NotFound:
            return Result.never()
        if cluster.metadata.deleting:
            return Result.never()
        decision = self.decide(cluster)
        if decision.wish == "refuse":
            await self.report(cluster, "False", "AWSIdentityInvalid", decision.problem)
        elif decision.wish == "accept":
            await self.accept(cluster)
        elif decision.roles is not None and decision.wish in ("grant", "withdraw"):
            try:
                if decision.wish == "grant":
                    await self.grant(cluster, decision.roles)
                    return Result.after(CHECK_SECONDS)
                await self.withdraw(cluster, decision.roles)
            except AwsError as error:
                reason = (
                    "AWSAccessConflict" if isinstance(error, GrantConflict) else "AWSCallFailed"
                )
                await self.report(cluster, "False", reason, f"{error}; it is tried again.")
                raise
        return Result.never()

    async def accept(self, cluster: ManagedCluster) -> None:
        """Accept a cluster whose ARN needs no person, once."""
        annotations = {AUTO_ACCEPTED: timestamp(self.context.now())}
        patch: Object = {
            "metadata": {"annotations": annotations},
            "spec": {"hubAcceptsClient": True},
        }
        await patch_cluster(self.client, cluster, patch)

    async def grant(self, cluster: ManagedCluster, roles: RegistrationRoles) -> None:
        """Have the role and the access entry of a cluster there."""
        driver = self.context.configuration.manager.aws_irsa or HubAwsIrsa()
        try:
            tags = tags_of(driver.tags)
        except ValueError as error:
            text = f"awsirsa.tags of the ClusterManager: {error}"
            await self.report(cluster, "False", "AWSIdentityInvalid", text)
            return
        record = record_of(roles)
        if cluster.metadata.annotations.get(AWS_ACCESS) != record:
            changed: Object = {"metadata": {"annotations": {AWS_ACCESS: record}}}
            written = await patch_cluster(self.client, cluster, changed)
            cluster = decode(written, ManagedCluster)
        wanted = await grant_of(self.client, cluster.name, roles, tags)
        await grants(self.context, roles).ensure(wanted)
        self.granted[cluster.name] = GrantedAccess(cluster.metadata.uid, record, time.monotonic())
        text = f"role {roles.hub_role_arn} is mapped to group {wanted.group} on {roles.hub}"
        await self.report(cluster, "True", "AWSAccessGranted", text)

    async def withdraw(self, cluster: ManagedCluster, roles: RegistrationRoles) -> None:
        """Remove the role and the access entry of a cluster that is not accepted."""
        self.granted.pop(cluster.name, None)
        await grants(self.context, roles).remove(
            await grant_of(self.client, cluster.name, roles, {})
        )
        text = "the cluster is not accepted: its role and its access entry were deleted"
        cluster = await self.report(cluster, "False", "AWSAccessWithdrawn", text)
        changed: Object = {"metadata": {"annotations": {AWS_ACCESS: None}}}
        await patch_cluster(self.client, cluster, changed)

    async def report(
        self, cluster: ManagedCluster, status: Status, reason: str, message: str
    ) -> ManagedCluster:
        """Write how the access of a cluster is, if that is news."""
        condition = StandardCondition(
            type=AWS_ROLE_ACCESS, status=status, reason=reason, message=bounded(message)
        )
        old = cluster.status.conditions
        new = put(old, condition, self.context.now())
        if new == old:
            return cluster
        if reason not in ("AWSAccessGranted", "AWSAccessWithdrawn"):
            self.context.record_warning(cluster, reason, condition.message)
        patch: Object = {"status": {"conditions": plain(new)}}
        written = await patch_cluster(self.client, cluster, patch, subresource="status")
        return decode(written, ManagedCluster)


def grants(context: HubContext, roles: RegistrationRoles) -> AccessGrants:
    """Makes and removes what clusters have in AWS."""
    return AccessGrants(context.aws.client, context.aws.identity(roles.hub.region))


async def grant_of(
    client: Client, cluster: str, roles: RegistrationRoles, tags: dict[str, str]
) -> AccessGrant:
    """What a cluster gets in AWS."""
    hub_uid: str = (await client.get(NAMESPACES, SYSTEM_NAMESPACE))["metadata"]["uid"]
    return AccessGrant(roles, hub_uid, cluster, f"{MAPPED_PREFIX}{cluster}", tags)


async def clean_up(context: HubContext, name: str) -> None:
    """Remove the role and the access entry of a cluster that is deleted."""
    async with context.aws.exclusive(name):
        try:
            found = await context.client.get(CLUSTERS, name)
        except NotFound:
            return
        cluster = decode(found, ManagedCluster)
        roles = recorded_roles(cluster)
        if roles is None:
            return
        try:
            await grants(context, roles).remove(await grant_of(context.client, name, roles, {}))
        except AwsError as error:
            raise DriverCleanUpFailed(
                f"{error}; if what it names is of no concern, remove the annotation {AWS_ACCESS}"
            ) from error


CONTROLLER = HubController("awsroles", AwsRoleController, ())
DRIVER = HubRegistrationDriver("awsirsa", CONTROLLER, clean_up)
