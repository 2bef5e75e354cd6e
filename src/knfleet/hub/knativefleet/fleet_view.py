"""From what is cached to what a plan is made from."""

from collections.abc import Mapping
from typing import Protocol

from knfleet.api import durations
from knfleet.api.fleet.fleet_names import FLEET_LABEL, PROMOTE, RETRY
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.knative.resources import Component
from knfleet.api.meta import Key, Object
from knfleet.api.moments import as_moment
from knfleet.hub.knativefleet.children import chosen_child
from knfleet.hub.knativefleet.gates.gate_results import gate_views
from knfleet.hub.knativefleet.plan.child_state import Child
from knfleet.hub.knativefleet.plan.fleet_clusters import FleetSelection, engine_strategy, waves_of
from knfleet.hub.knativefleet.plan.fleet_rollout import (
    ClusterView,
    FleetRolloutView,
    RecordedRollout,
)
from knfleet.hub.knativefleet.template.fleet_template import COMPONENTS, DesiredChildren
from knfleet.hub.knativefleet.template.revisions import Revision
from knfleet.hub.knativefleet.template.variables import ProfileFacts

UNKNOWN_REVISION = DesiredChildren(problem="the revision is not in the history any more")


class FleetSource(Protocol):
    """Where views are made from: the caches of the hub, or one look at it."""

    def fleet_names(self) -> frozenset[str]:
        """The names of all fleets."""
        ...

    def of_place(self, component: Component, place: str) -> list[Object]:
        """The custom resources of a component for a profile."""
        ...

    def of_fleet(self, component: Component, fleet: str) -> list[Object]:
        """The children of a fleet."""
        ...

    def child(self, manifest: Object, component: Component) -> Child:
        """What a child says."""
        ...

    def meaning(
        self, fleet: str, revision: Revision, facts: ProfileFacts, profile: Key
    ) -> DesiredChildren:
        """What a revision means for a cluster."""
        ...


class ViewBuilder:
    """Builds views of fleets."""

    def __init__(self, cache: FleetSource) -> None:
        self.cache = cache

    def view(
        self,
        fleet: KnativeFleet,
        chosen: FleetSelection,
        revisions: Mapping[str, Revision],
        record: RecordedRollout,
    ) -> FleetRolloutView:
        """What is known of a fleet."""
        fleets = self.cache.fleet_names()
        spare: list[Child] = []
        clusters = {
            name: self.cluster(fleet, name, member.problem, fleets, spare)
            for name, member in chosen.members.items()
        }
        target = fleet.status.rollout.revision
        spec = fleet.spec

        def desired(revision: str, cluster: str) -> DesiredChildren:
            known = revisions.get(revision)
            if known is None:
                return UNKNOWN_REVISION
            profile = Key(spec.clusters.namespace, cluster)
            return self.cache.meaning(
                fleet.metadata.name, known, chosen.members[cluster].facts, profile
            )

        good = fleet.status.last_good_revision
        retried = as_moment(fleet.metadata.annotations.get(RETRY, ""))
        rollback = spec.on_failure
        return FleetRolloutView(
            clusters=clusters,
            waves=waves_of(spec.strategy, chosen),
            strategy=engine_strategy(spec.strategy, spec.strategy),
            target=target,
            good=good if good in revisions else "",
            record=record,
            desired=desired,
            leaving=(*spare, *(self.leaving(fleet, clusters) if chosen.is_certain else ())),
            rollback_scope=(rollback.scope or "Wave") if rollback.action == "Rollback" else None,
            between_seconds=durations.seconds(spec.strategy.between_waves) or 0.0,
            paused=spec.paused,
            promoted=promoted_wave(fleet),
            retried=retried,
            enforces=spec.drift_policy == "Enforce",
            joins_at_once=spec.joining == "LastGood",
            gates=gate_views(spec.strategy.gates, fleet.status.rollout.gates, retried),
        )

    def cluster(
        self,
        fleet: KnativeFleet,
        name: str,
        problem: str,
        fleets: frozenset[str],
        spare: list[Child],
    ) -> ClusterView:
        """What is known of a cluster; children that are too many are added to a list."""
        place = str(Key(fleet.spec.clusters.namespace, name))
        children: dict[Component, Child] = {}
        conflict = ""
        for component in COMPONENTS:
            found = self.cache.of_place(component, place)
            chosen = chosen_child(found, fleet, fleets, component)
            is_wanted = fleet.spec.template(component) is not None
            conflict = conflict or (chosen.conflict if is_wanted else "")
            spare += [self.cache.child(each, component) for each in chosen.spare]
            if chosen.child is not None and (is_wanted or is_of(chosen.child, fleet)):
                children[component] = self.cache.child(chosen.child, component)
        return ClusterView(name=name, children=children, problem=problem, conflict=conflict)

    def leaving(self, fleet: KnativeFleet, clusters: Mapping[str, ClusterView]) -> list[Child]:
        """Children of clusters that are not in the fleet."""
        namespace = fleet.spec.clusters.namespace
        return [
            child
            for component in COMPONENTS
            for each in self.cache.of_fleet(component, fleet.metadata.name)
            if (child := self.cache.child(each, component)).profile.namespace != namespace
            or child.profile.name not in clusters
        ]


def is_of(manifest: Object, fleet: KnativeFleet) -> bool:
    """Whether a custom resource belongs to a fleet already."""
    labels: Object = manifest["metadata"].get("labels") or {}
    return labels.get(FLEET_LABEL) == fleet.metadata.name


def promoted_wave(fleet: KnativeFleet) -> str:
    """The wave of the current rollout that a user promoted; empty when none is."""
    started, _, wave = fleet.metadata.annotations.get(PROMOTE, "").partition("/")
    return wave if started == fleet.status.rollout.started else ""
