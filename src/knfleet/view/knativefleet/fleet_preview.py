"""What a change of a fleet would do: wave by wave, cluster by cluster. Nothing is written."""

import hashlib
from collections.abc import Sequence
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.fleet.knativefleet_status import RolloutRecord
from knfleet.api.knative.resources import Component
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import part
from knfleet.hub.context import Now, wall
from knfleet.hub.knativefleet.fleet_view import ViewBuilder
from knfleet.hub.knativefleet.plan.cluster_state import lost, own_revision, state_of
from knfleet.hub.knativefleet.plan.fleet_clusters import selector_problem
from knfleet.hub.knativefleet.plan.fleet_rollout import (
    ClusterView,
    FleetRolloutView,
    RecordedRollout,
    RolloutWave,
)
from knfleet.hub.knativefleet.template.fleet_template import (
    COMPONENTS,
    RenderedChild,
    content_hash,
    content_of,
)
from knfleet.hub.knativefleet.template.revisions import Revision, next_number
from knfleet.hub.knativefleet.template.upgrade_steps import steps_between
from knfleet.hub.rollout.rollout_model import State
from knfleet.hub.rollout.rollout_plan import concurrency
from knfleet.kube.client.verbs import Client
from knfleet.view.knativefleet.fleet_checks import FleetFindings
from knfleet.view.knativefleet.fleet_images import FleetImage
from knfleet.view.knativefleet.fleet_preflight import too_old
from knfleet.view.knativefleet.fleet_snapshot import (
    read_revisions,
    read_selection,
    read_snapshot,
    typed_fleet,
)
from knfleet.view.knativefleet.planned_installs import PlannedInstall, planned_installs

Action = Literal["none", "create", "adopt", "change", "unreachable", "invalid"]


class PreviewCluster(Struct, frozen=True, kw_only=True, rename="camel"):
    """What would happen to one cluster."""

    cluster: str
    action: Action
    versions: dict[str, list[str]] = {}
    """By component: what is installed, and the versions on the way, the last one included."""
    fields: list[str] = []
    """Fields of the specs that change."""
    message: str = ""


class PreviewWave(Struct, frozen=True, kw_only=True, rename="camel"):
    """What would happen in one wave."""

    name: str
    concurrency: int
    clusters: list[PreviewCluster]
    expected_seconds: float | None = None
    """By how long the last changes of this fleet took; None when nothing is known."""

    @property
    def changed(self) -> list[PreviewCluster]:
        """The clusters that would be changed."""
        return [each for each in self.clusters if each.action in ("create", "adopt", "change")]


class FleetPreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a change of a fleet would do."""

    name: str
    is_new: bool
    revision: str
    number: int
    is_rollout: bool
    """Whether the change makes another revision, or only clusters differ."""
    waves: list[PreviewWave]
    leaving: list[str] = []
    """Clusters that are no longer in the fleet."""
    deletion_policy: str = "Delete"
    problems: list[str] = []
    refused: list[str] = []
    """What operators or API servers would refuse, by cluster."""
    images: list[FleetImage] = []
    """What clusters pull; not known without the files of the releases."""
    unchecked: list[str] = []
    """What could not be looked at, and why."""

    @property
    def has_changes(self) -> bool:
        """Whether anything would happen."""
        return bool(self.leaving) or any(wave.changed for wave in self.waves)

    def digest(self) -> str:
        """What tells apart two previews; how long it would take does not matter."""
        waves = [replace(each, expected_seconds=None) for each in self.waves]
        written = msgspec.json.encode(replace(self, waves=waves), order="deterministic")
        return hashlib.sha256(written).hexdigest()


class FleetOutlook(Struct, frozen=True):
    """What would happen, and what that was made from."""

    preview: FleetPreview
    fleet: KnativeFleet
    view: FleetRolloutView

    def installs(self) -> list[PlannedInstall]:
        """The installations of the clusters that would be changed."""
        changed = [each.cluster for wave in self.preview.waves for each in wave.changed]
        namespaces: dict[Component, str] = {}
        for component in COMPONENTS:
            if (template := self.fleet.spec.template(component)) is not None:
                namespaces[component] = template.namespace
        return list(planned_installs(self.view, changed, namespaces))

    def with_findings(self, findings: FleetFindings) -> FleetPreview:
        """The preview with what was found out about releases and clusters."""
        return replace(
            self.preview,
            images=list(findings.images),
            refused=[*self.preview.refused, *findings.refused],
            unchecked=list(findings.unchecked),
        )


async def preview(client: Client, manifest: Object, live: Object | None) -> FleetPreview:
    """What would happen if a fleet were as a manifest says; raises DecodeError."""
    return (await outlook(client, manifest, live)).preview


async def outlook(
    client: Client, manifest: Object, live: Object | None, now: Now = wall
) -> FleetOutlook:
    """The same, with what that was made from."""
    status: Object = part(live or {}, "status")
    meta: Object = part(live or {}, "metadata")
    wanted = typed_fleet(
        {
            **manifest,
            "metadata": {**manifest["metadata"], "uid": meta.get("uid", "")},
            "status": status,
        }
    )
    snapshot = await read_snapshot(client)
    chosen = await read_selection(client, wanted)
    known = {each.hash: each for each in await read_revisions(client, wanted.metadata.name)}
    content = content_of(manifest["spec"])
    target = content_hash(content)
    number = known[target].number if target in known else next_number(known)
    is_rollout = wanted.status.rollout.revision != target
    if is_rollout and target in known:
        number = next_number(known)
    revisions = {**known, target: Revision(target, number, content)}
    rollout = RolloutRecord(revision=target, number=number)
    fleet = replace(wanted, status=replace(wanted.status, rollout=rollout))
    view = ViewBuilder(snapshot).view(fleet, chosen, revisions, RecordedRollout())
    problems = [
        text
        for text in (selector_problem(wanted.spec), unselected(chosen.reason, chosen.message))
        if text
    ]
    typical = typical_seconds(view)
    waves = [preview_wave(view, wave, typical, now) for wave in view.waves]
    changed = [each.cluster for wave in waves for each in wave.changed]
    made = FleetPreview(
        name=wanted.metadata.name,
        is_new=live is None,
        revision=target,
        number=number,
        is_rollout=is_rollout,
        waves=waves,
        leaving=sorted({child.profile.name for child in view.leaving}),
        deletion_policy=fleet.spec.deletion_policy,
        problems=problems,
        refused=too_old(changed, chosen.members),
    )
    return FleetOutlook(made, fleet, view)


def unselected(reason: str, message: str) -> str:
    """Why it is not known which clusters there are; empty when it is."""
    return "" if reason == "ClustersFound" else message


def preview_wave(
    view: FleetRolloutView, wave: RolloutWave, typical: float | None, now: Now
) -> PreviewWave:
    """What would happen in a wave."""
    clusters = [preview_cluster(view, view.clusters[name], now) for name in wave.clusters]
    slots = concurrency(wave.strategy.max_concurrency, len(wave.clusters))
    made = PreviewWave(name=wave.name, concurrency=slots, clusters=clusters)
    if typical is None or not made.changed:
        return made
    steps = max(
        (len(path) - 1 for each in made.changed for path in each.versions.values()), default=1
    )
    rounds = -(-len(made.changed) // max(slots, 1))
    seconds = rounds * (typical * max(steps, 1) + wave.strategy.min_success_seconds)
    is_last = wave is view.waves[-1]
    return replace(made, expected_seconds=seconds + (0.0 if is_last else view.between_seconds))


def preview_cluster(view: FleetRolloutView, cluster: ClusterView, now: Now) -> PreviewCluster:
    """What would happen to a cluster."""
    desired = view.desired(view.target, cluster.name)
    state = state_of(cluster, view.target, desired, None)
    if state.is_invalid:
        return PreviewCluster(cluster=cluster.name, action="invalid", message=state.message)
    reason, _ = lost(cluster, now())
    has = state.progress.state is not State.TO_APPLY and not state.deletes
    versions: dict[str, list[str]] = {}
    fields: set[str] = set()
    for component, rendered in desired.components.items():
        child = cluster.children.get(component)
        installed = "" if child is None else child.installed
        path = [installed or "-", *steps_between(installed, rendered.version or "newest")]
        versions[component] = path
        fields |= changed_fields(component, cluster, rendered)
    action: Action = "change"
    if has and not fields:
        action = "none"
    elif reason:
        action = "unreachable"
    elif not cluster.children:
        action = "create"
    elif not own_revision(cluster):
        action = "adopt"
    removed = [f"{each.component} (removed)" for each in state.deletes]
    return PreviewCluster(
        cluster=cluster.name,
        action=action,
        versions=versions,
        fields=sorted(fields) + removed,
        message=reason,
    )


def changed_fields(component: Component, cluster: ClusterView, rendered: RenderedChild) -> set[str]:
    """The fields of a component's spec that would change."""
    child = cluster.children.get(component)
    if child is None:
        return set()
    new: Object = msgspec.to_builtins(rendered.value)
    old: Object = {} if child.value is None else msgspec.to_builtins(child.value)
    return {f"{component}.{name}" for name in {*old, *new} if old.get(name) != new.get(name)}


def typical_seconds(view: FleetRolloutView) -> float | None:
    """How long a cluster took the last time, in the middle; None when nothing is known."""
    found = [
        (child.ready_since - child.started).total_seconds()
        for cluster in view.clusters.values()
        for child in cluster.children.values()
        if child.is_settled and child.ready_since is not None and child.started is not None
    ]
    return median_of([each for each in found if each >= 0])


def median_of(values: Sequence[float]) -> float | None:
    """The median; None of nothing."""
    return median(values) if values else None
