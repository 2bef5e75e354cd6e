"""Single decisions about fleets; the simulation shows that they fit together."""

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from knfleet.api.cluster.clusterset import LabelSelector
from knfleet.api.fleet.fleet_members import FleetClusters
from knfleet.api.fleet.knativefleet import KnativeFleet, KnativeFleetSpec
from knfleet.api.fleet.knativefleet_status import RolloutRecord
from knfleet.api.fleet.wave_strategy import FleetStrategy, FleetWave
from knfleet.api.meta import Object
from knfleet.api.schema import ObjectMeta
from knfleet.hub.knativefleet.fleet_status import record_of, status_of
from knfleet.hub.knativefleet.plan.fleet_clusters import FleetSelection, selection, waves_of
from knfleet.hub.knativefleet.plan.fleet_plan import plan_fleet
from knfleet.hub.knativefleet.plan.fleet_rollout import ClusterPhase, GateView, RolloutWave
from tests.unit.hub.knativefleet.simulation import DEADLINE, START, World


def installed(*waves: list[str], **options: object) -> World:
    """A fleet that is complete."""
    world = World(waves, 10, **options)
    for _ in range(30):
        for name in world.machines:
            world.work(name)
        if world.act().is_complete and world.record.is_complete:
            return world
    raise AssertionError("the fleet is not complete")


def phases(world: World) -> dict[str, ClusterPhase]:
    """How far each cluster is."""
    plan = plan_fleet(world.view(), world.now)
    return {name: report.phase for name, report in plan.reports.items()}


def test_a_first_wave_without_a_reachable_cluster_does_not_pass():
    world = installed(["a"], ["b"])
    world.change("1.21")
    world.machines["a"].is_alive, world.machines["a"].is_known_dead = False, True

    for _ in range(5):
        world.act()

    plan = plan_fleet(world.view(), world.now)
    assert plan.waves[0].message.startswith("no cluster of the wave can be reached")
    assert world.machines["b"].children["serving"].revision == "1.20"

    world.view_fields["promoted"] = "w0"
    for _ in range(5):
        world.act()
    assert world.machines["b"].children["serving"].revision == "1.21"


def test_a_later_wave_that_cannot_be_reached_does_not_block_others():
    world = installed(["a"], ["b"], ["c"])
    world.change("1.21")
    world.machines["b"].is_alive, world.machines["b"].is_known_dead = False, True
    for _ in range(8):
        world.act()
        world.work("a")
        world.work("c")

    assert world.machines["c"].children["serving"].revision == "1.21"
    assert phases(world)["b"] is ClusterPhase.UNREACHABLE


def test_a_cluster_that_waits_for_its_wave_joins_with_the_last_good_revision_or_not():
    for at_once, given in ((True, {"1.20"}), (False, set[str]())):
        world = installed(["a"], ["b"], joins_at_once=at_once)
        world.broken.add(("a", "1.21"))
        world.change("1.21")
        world.machines["new"] = type(world.machines["a"])("new")
        world.waves[1].append("new")
        for _ in range(3):
            world.act()

        children = world.machines["new"].children.values()
        assert {child.revision for child in children} == given


def test_a_version_that_is_refused_fails_at_once():
    world = installed(["a"], ["b"])
    world.change("1.21")
    world.act()
    child = world.machines["a"].children["serving"]
    world.machines["a"].children["serving"] = replace(child, refused="not eligible")

    plan = world.act()

    assert "a failed or timed out" in plan.halted
    assert plan.reports["a"].message == "not eligible"


def test_a_rollback_is_over_when_all_clusters_of_its_scope_are_back():
    world = installed(["a"], ["b"], rollback_scope="All")
    world.change("1.21")
    for _ in range(3):
        world.act()
        world.work("a")
    child = world.machines["b"].children["serving"]
    assert child.revision == "1.21"
    world.machines["b"].children["serving"] = replace(child, refused="not eligible")

    decided = world.act()
    assert (decided.must_record, decided.is_rolling_back) == (True, True)
    begun = world.act()
    assert {write.cluster for write in begun.writes} == {"a", "b"}
    assert world.act().is_rolling_back
    for name in ("a", "b"):
        rolled = world.machines[name].children["serving"]
        world.machines[name].children["serving"] = replace(rolled, refused="")
        world.work(name)
    assert not world.act().is_rolling_back


def test_a_wave_waits_for_its_gates_and_fails_with_them():
    world = installed(["a"])
    world.change("1.21")
    for _ in range(3):
        world.act()
        world.work("a")
    world.record = replace(world.record, completed={}, is_complete=False)
    view = world.view()
    gated = replace(view, waves=(RolloutWave("w0", ("a",), world.strategy, ("metrics",)),))

    waiting = plan_fleet(gated, world.now)
    passed = plan_fleet(
        replace(gated, gates={"w0": GateView(passed=frozenset({"metrics"}))}), world.now
    )
    failed = plan_fleet(
        replace(gated, gates={"w0": GateView(failed={"metrics": "5 > 1"})}), world.now
    )

    assert waiting.waits_for_gates == ("metrics",)
    assert not waiting.is_complete
    assert passed.is_complete
    assert failed.halted == "gate metrics: 5 > 1"


def test_time_alone_leads_to_another_look():
    world = installed(["a"])
    world.change("1.21")
    world.act()

    plan = plan_fleet(world.view(), world.now)

    assert plan.next_look == world.now + timedelta(seconds=DEADLINE)


def test_a_rollback_ends_when_a_user_tries_again():
    rollback = {"to": "good", "scope": "All", "since": "2026-01-01T00:00:10Z"}
    status: Object = {"rollout": {"revision": "bad", "rollback": rollback}}
    fleet = msgspec.convert(
        {"spec": {"clusters": {"namespace": "x"}}, "status": status}, KnativeFleet
    )
    later: datetime = START + timedelta(seconds=20)

    assert record_of(fleet, "bad", None) is not None
    assert record_of(fleet, "bad", START) is not None
    assert record_of(fleet, "bad", later) is None
    assert record_of(fleet, "other", None) is None


def profile(name: str, **labels: str) -> Object:
    healthy = {"type": "ControlPlaneHealthy", "status": "True"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"conditions": [healthy]}}


def test_each_cluster_is_in_the_first_wave_that_has_it():
    profiles = {name: profile(name, tier=name[0]) for name in ("a1", "a2", "b1", "c1")}
    chosen = selection(FleetClusters(namespace="x", selector=LabelSelector()), profiles, None, [])
    strategy = FleetStrategy(
        max_concurrency=2,
        min_success_time="1m",
        waves=[
            FleetWave(name="one", names=["b1", "gone"], max_concurrency=1),
            FleetWave(name="two", selector=LabelSelector(match_labels={"tier": "a"})),
        ],
    )

    waves = waves_of(strategy, chosen)

    assert [(wave.name, wave.clusters) for wave in waves] == [
        ("one", ("b1",)),
        ("two", ("a1", "a2")),
        ("remaining", ("c1",)),
    ]
    assert [wave.strategy.max_concurrency for wave in waves] == [1, 2, 2]
    assert {wave.strategy.min_success_seconds for wave in waves} == {60.0}
    assert {wave.strategy.deadline_seconds for wave in waves} == {600.0}


def test_a_name_without_a_profile_is_a_cluster_that_cannot_be_reached():
    chosen = selection(
        FleetClusters(namespace="x", names=["a", "b"]), {"a": profile("a")}, None, []
    )

    assert chosen.members["a"].problem == ""
    assert chosen.members["b"].problem == "ClusterProfile x/b is missing"


def test_the_status_stays_small_however_many_clusters_fail():
    names = [f"cluster-{number:04}-{'x' * 40}" for number in range(1000)]
    world = World([names[:500], names[500:]], 1000, max_failures=1000)
    for _ in range(3):
        world.act()
    for machine in world.machines.values():
        for component, child in machine.children.items():
            machine.children[component] = replace(child, refused="bad " * 10_000)
    view = world.view()
    plan = plan_fleet(view, world.now)
    fleet = KnativeFleet(
        metadata=ObjectMeta(name="large"),
        spec=KnativeFleetSpec(clusters=FleetClusters(namespace="x", names=names)),
    )
    fleet = replace(fleet, status=replace(fleet.status, rollout=RolloutRecord(revision="r")))

    status = status_of(fleet, view, plan, FleetSelection(), world.now)

    assert status.clusters.failed >= 500
    assert len(status.problems) == 50
    assert len(msgspec.json.encode(replace(fleet, status=status))) < 300_000
