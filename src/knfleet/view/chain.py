"""One installation as a chain: target → release → objects → readiness.

The chain is read from the custom resource alone. The first link that does not hold is the one to
look at: `opened` asks the target itself which workload, which replica set and which pod it is.
"""

from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.knative.conditions import (
    DEPLOYMENTS_AVAILABLE,
    INSTALL_SUCCEEDED,
    TARGET_CLUSTER_RESOLVED,
    VERSION_MIGRATION_ELIGIBLE,
    Condition,
    find,
)
from knfleet.api.meta import Key, Object
from knfleet.apply.applyset import ApplySet
from knfleet.clusters.anchor import AnchorSpec
from knfleet.kube.client.verbs import Client
from knfleet.operator.kinds import profile_of
from knfleet.operator.status.messages import is_all_sent, is_of_target, problem_in
from knfleet.operator.targets.targets import inventory_key
from knfleet.view.fleet_model import ClusterRow, InstallRow, Stand
from knfleet.view.fleet_reader import STUCK, install_row
from knfleet.view.progress import progress_of
from knfleet.view.workload_findings import WorkloadFinding, findings


class ChainLink(Struct, frozen=True, rename="camel"):
    """One link of the chain."""

    name: str
    """`target`, `release`, `objects` or `readiness`."""
    state: Stand
    summary: str = ""
    reason: str = ""
    """What `knfleet explain` knows more about."""
    details: tuple[WorkloadFinding, ...] = ()
    """What was found when the link was opened."""


class Chain(Struct, frozen=True, rename="camel"):
    """An installation and its four links."""

    install: InstallRow
    links: tuple[ChainLink, ...]
    members: str
    """Label selector of its objects on the target."""

    @property
    def failing(self) -> ChainLink | None:
        """The link to look at: the first that is broken, else the first that does not hold yet."""
        broken = (link for link in self.links if link.state == "bad")
        loose = (link for link in self.links if link.state != "ok")
        return next(broken, None) or next(loose, None)


def chain_of(manifest: Object, cluster: ClusterRow | None = None) -> Chain:
    """The chain of a custom resource, as it tells itself; its cluster tells more if it is known."""
    profile = profile_of(manifest)
    home = {} if profile is None or cluster is None else {str(profile): cluster.name}
    row = install_row(manifest, manifest["kind"], home)
    target = target_link(row, cluster)
    links = [target, release_link(row), objects_link(row), readiness_link(row)]
    if target.state == "bad":
        links[1:] = [as_last_known(link) for link in links[1:]]
    return Chain(row, tuple(links), members_of(manifest, profile))


def members_of(manifest: Object, profile: Key | None) -> str:
    """The label selector of a custom resource's objects, wherever they are."""
    parent = (
        inventory_key(manifest)
        if profile is None
        else AnchorSpec(manifest["kind"], Key.of(manifest), "").key
    )
    return ApplySet(CONFIG_MAPS, parent).selector


def target_link(row: InstallRow, cluster: ClusterRow | None) -> ChainLink:
    """Whether the cluster can be used."""
    condition = find(row.conditions, TARGET_CLUSTER_RESOLVED)
    if condition is None or condition.status == "Unknown":
        return ChainLink("target", "unknown", f"{row.target}: no connection was attempted yet")
    if condition.status == "True":
        version = f", Kubernetes {cluster.kubernetes}" if cluster and cluster.kubernetes else ""
        return ChainLink("target", "ok", f"{row.target} answers{version}")
    return ChainLink("target", "bad", condition.message, condition.reason, hub_findings(cluster))


def hub_findings(cluster: ClusterRow | None) -> tuple[WorkloadFinding, ...]:
    """What the hub itself knows of a cluster that cannot be used."""
    if cluster is None or cluster.stand == "ok":
        return ()
    why = ": ".join(filter(None, [cluster.reason, cluster.message]))
    since = f" (since {cluster.since})" if cluster.since else ""
    return (WorkloadFinding(f"cluster {cluster.name}", cluster.stand, f"{why}{since}"),)


def release_link(row: InstallRow) -> ChainLink:
    """Whether the wanted release can be had, and be installed over the one that is there."""
    eligible = find(row.conditions, VERSION_MIGRATION_ELIGIBLE)
    if eligible is not None and eligible.status == "False":
        return ChainLink("release", "bad", eligible.message, eligible.reason)
    install = find(row.conditions, INSTALL_SUCCEEDED)
    if is_error(install) and not is_of_target(problem_of(install)):
        return ChainLink("release", "bad", problem_of(install), reason_of(install))
    wanted = row.wanted or "the newest"
    if row.installed:
        return ChainLink("release", "ok", f"{row.installed} is installed, {wanted} is wanted")
    if eligible is None or eligible.status == "Unknown":
        return ChainLink("release", "unknown", f"{wanted} is wanted; nothing is installed yet")
    return ChainLink("release", "ok", f"{wanted} is wanted")


def objects_link(row: InstallRow) -> ChainLink:
    """Whether everything is applied, or removed."""
    install = find(row.conditions, INSTALL_SUCCEEDED)
    if install is None:
        return ChainLink("objects", "unknown", "nothing is applied yet")
    if install.reason == "AlreadyInstalled":
        return ChainLink("objects", "bad", install.message, install.reason)
    if is_error(install):
        if is_of_target(problem_of(install)):
            return ChainLink("objects", "bad", problem_of(install), install.reason)
        return ChainLink("objects", "unknown", "nothing could be rendered")
    if install.status == "True" or is_applied(install, row):
        return ChainLink("objects", "ok", "all are applied")
    text = install.message or "nothing is applied yet"
    return ChainLink("objects", "busy" if install.reason else "unknown", text, install.reason)


def is_applied(install: Condition, row: InstallRow) -> bool:
    """Whether all was applied although the installation is not complete: workloads were judged."""
    workloads = find(row.conditions, DEPLOYMENTS_AVAILABLE)
    was_judged = workloads is not None and workloads.reason == "NotReady"
    return install.reason == "Installing" and was_judged and is_all_sent(install.message)


def readiness_link(row: InstallRow) -> ChainLink:
    """Whether what was applied works."""
    condition = find(row.conditions, DEPLOYMENTS_AVAILABLE)
    if condition is None or (condition.status == "Unknown" and not condition.reason):
        return ChainLink("readiness", "unknown", "no workloads yet")
    if condition.status == "True":
        return ChainLink("readiness", "ok", "all workloads are available")
    if condition.status == "Unknown":
        return ChainLink("readiness", "unknown", condition.message, condition.reason)
    progress = progress_of(row.conditions)
    state: Stand = "bad" if STUCK in condition.message else "busy"
    if progress is None or not progress.total:
        return ChainLink("readiness", state, condition.message, condition.reason)
    names = ", ".join(progress.waiting)
    text = f"{progress.done} of {progress.total} workloads are available; waiting for {names}"
    return ChainLink("readiness", state, text, condition.reason)


def as_last_known(link: ChainLink) -> ChainLink:
    """A link of which nothing more is known while the target is lost."""
    return replace(link, state="unknown", summary=f"last known: {link.summary}")


def is_error(install: Condition | None) -> bool:
    """Whether an installation failed."""
    return install is not None and install.status == "False" and install.reason == "Error"


def problem_of(install: Condition | None) -> str:
    return problem_in(install.message) if install is not None else ""


def reason_of(install: Condition | None) -> str:
    """The reason of a condition that may be missing."""
    return install.reason if install is not None else ""


async def opened(chain: Chain, client: Client) -> Chain:
    """The chain with its failing link opened on the target: what exactly is not as it should be.

    A link that the hub's own objects explain (the target, the release) stays as it is. Raises
    `KubeError` when the target does not answer.
    """
    failing = chain.failing
    if failing is None or failing.name not in ("objects", "readiness"):
        return chain
    found = await findings(client, chain.members, chain.install.namespace)
    return with_details(chain, failing.name, found)


def with_details(chain: Chain, name: str, details: tuple[WorkloadFinding, ...]) -> Chain:
    """The chain with what was found at one of its links."""
    links = tuple(
        replace(link, details=(*link.details, *details)) if link.name == name else link
        for link in chain.links
    )
    return replace(chain, links=links)
