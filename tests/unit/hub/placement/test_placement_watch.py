"""Which Placements a change concerns."""

from typing import Any, Literal

import pytest

from knfleet.api.cluster.clusterset import ManagedClusterSet
from knfleet.api.cluster.placement import PLACEMENT_LABEL
from knfleet.api.meta import HUB, Key, Object, Request
from knfleet.hub.placement.decisions.decision_objects import placements_of, read
from knfleet.hub.placement.placement_watch import PlacementWatch
from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates
from knfleet.kube.cache.store import Store, StoreChange
from tests.unit.hub.placement.samples import by_cel, by_labels, manifest

Kind = Literal["added", "updated", "deleted"]


class Cache:
    """The decisions, as an informer has them."""

    def __init__(self) -> None:
        self.store = Store({"placement": placements_of})

    def by_index(self, index: str, value: str) -> list[Object]:
        return self.store.by_index(index, value)


class Scene:
    """A watch that knows two namespaces, each with a Placement by labels and one by CEL."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.watch = PlacementWatch(self.cache, CelPredicates())
        self.versions = 0
        for namespace, set_ in (("one", "default"), ("two", "prod")):
            self.cluster_set(set_)
            self.binding(namespace, set_)
            self.placement(namespace, "labels", predicates=by_labels(env="prod"))
            self.placement(namespace, "cel", predicates=by_cel("true"))

    def change(self, key: Key, old: Object | None, new: Object | None) -> StoreChange:
        kind: Kind = "added" if old is None else "deleted" if new is None else "updated"
        return StoreChange(kind, key, old, new)

    def cluster_set(self, name: str, **spec: Any) -> list[str]:
        new = {"metadata": {"name": name}, "spec": spec}
        return names(self.watch.by_set(self.change(Key("", name), None, new)))

    def binding(self, namespace: str, set_: str) -> list[str]:
        new = {"metadata": {"name": set_, "namespace": namespace}, "spec": {"clusterSet": set_}}
        return names(self.watch.by_binding(self.change(Key(namespace, set_), None, new)))

    def placement(
        self, namespace: str, name: str, status: Object | None = None, **spec: Any
    ) -> list[str]:
        self.versions += 1
        meta = {"name": name, "namespace": namespace, "generation": 1, "uid": "u"}
        new = {"metadata": meta, "spec": spec, "status": status or {}}
        return names(self.watch.by_placement(self.change(Key(namespace, name), None, new)))

    def cluster(self, new: Object, **extra: Any) -> list[str]:
        made = {**new, "metadata": {**new["metadata"], **extra}}
        key = Key("", new["metadata"]["name"])
        return names(self.watch.by_cluster(self.change(key, None, made)))


def names(requests: Any) -> list[str]:
    found: list[Request] = list(requests)
    assert {each.cluster for each in found} <= {HUB}
    return sorted(str(each.key) for each in found)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_new_cluster_concerns_those_who_can_select_it(scene: Scene):
    assert scene.cluster(manifest("a")) == ["one/cel", "one/labels"]


def test_a_change_that_nobody_reads_concerns_expressions_only(scene: Scene):
    scene.cluster(manifest("a"))

    assert scene.cluster(manifest("a"), resourceVersion="2") == ["one/cel"]


def test_a_cluster_that_moves_concerns_both_sets(scene: Scene):
    scene.cluster(manifest("a"))

    assert scene.cluster(manifest("a", set_="prod")) == [
        *("one/cel", "one/labels"),
        *("two/cel", "two/labels"),
    ]


def test_a_cluster_that_is_being_deleted_is_gone(scene: Scene):
    scene.cluster(manifest("a"))

    assert scene.cluster(manifest("a"), deletionTimestamp="x") == ["one/cel", "one/labels"]
    assert scene.watch.fleet.clusters == {}


def test_a_set_that_changes_concerns_its_namespaces(scene: Scene):
    assert scene.cluster_set("default") == []
    selector: Object = {"selectorType": "LabelSelector", "labelSelector": {}}
    assert scene.cluster_set("default", clusterSelector=selector) == ["one/cel", "one/labels"]
    assert isinstance(scene.watch.fleet.sets["default"], ManagedClusterSet)


def test_a_binding_concerns_its_namespace(scene: Scene):
    assert scene.binding("one", "prod") == ["one/cel", "one/labels"]
    assert scene.binding("one", "prod") == []


def test_scores_concern_those_who_read_them(scene: Scene):
    scene.cluster(manifest("a"))
    coordinate = {"type": "AddOn", "addOn": {"resourceName": "usage", "scoreName": "cpu"}}
    policy = {"configurations": [{"scoreCoordinate": coordinate}]}
    scene.placement("one", "ranked", prioritizerPolicy=policy)
    new: Object = {"metadata": {"name": "usage", "namespace": "a"}, "status": {"scores": []}}

    concerned = names(scene.watch.by_score(scene.change(Key("a", "usage"), None, new)))

    assert concerned == ["one/cel", "one/ranked"]


def test_a_status_written_here_concerns_nobody(scene: Scene):
    status = {"numberOfSelectedClusters": 3}
    predicates = by_labels(env="prod")
    scene.watch.expect(Key("one", "labels")).status = status

    assert scene.placement("one", "labels", status, predicates=predicates) == []
    other = {"numberOfSelectedClusters": 4}
    assert scene.placement("one", "labels", other, predicates=predicates) == ["one/labels"]
    assert scene.placement("one", "labels", status) == ["one/labels"]


def test_a_decision_written_here_concerns_nobody_and_one_by_hand_does(scene: Scene):
    def decision(*clusters: str) -> Object:
        scene.versions += 1
        return {
            "metadata": {
                "name": "labels-decision-1",
                "namespace": "one",
                "resourceVersion": str(scene.versions),
                "labels": {PLACEMENT_LABEL: "labels"},
            },
            "status": {
                "decisions": [{"clusterName": each, "reason": "", "score": 0} for each in clusters]
            },
        }

    def seen(new: Object) -> list[str]:
        change = scene.cache.store.put(Key.of(new), new)
        assert change is not None
        return names(scene.watch.by_decision(change))

    key = Key("one", "labels")
    scene.watch.expect(key).decisions = {"labels-decision-1": read(decision("a", "b"))}

    assert seen(decision("a", "b")) == []
    assert scene.watch.fleet.decided[key] == {"a", "b"}
    assert scene.watch.fleet.counts == {"a": 1, "b": 1}
    assert seen(decision("a")) == ["one/labels"]
    assert scene.watch.fleet.counts == {"a": 1}
