"""What is decided for each object, and for all together."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.core import BUDGETS, DEPLOYMENTS, NAMESPACES, VALIDATING_WEBHOOKS
from knfleet.api.meta import Object
from knfleet.apply import well_known
from knfleet.apply.applyset import Inventory
from knfleet.apply.desired import Desired
from knfleet.apply.observe.metadata import ObservedObject, observe, slim
from knfleet.apply.plan import steps as planning
from knfleet.apply.plan.field_sets import FieldSet, UnownedField, uncovered
from knfleet.apply.plan.prune import RemovalWave, SetMember, losses, prune
from knfleet.apply.plan.steps import StepAction, StepContext, decide, make_plan
from knfleet.apply.plan.waves import Wave
from knfleet.apply.refs import Ref
from tests.support.objects import (
    OTHER,
    SET,
    THINGS,
    cluster_role,
    config_map,
    crd,
    deployment,
    desired_set,
    job,
    live,
    manifest,
    namespace,
    seen,
    service,
)

CONTEXT = StepContext(SET.id)


def one(given: Object) -> Desired:
    """One object ready to be applied."""
    (each,) = desired_set(given).objects.values()
    return each


def test_what_is_not_there_is_created() -> None:
    """Nothing else could be meant."""
    assert decide(one(config_map("c")), None, CONTEXT).verdict == StepAction.CREATE


def test_what_we_applied_and_nobody_touched_is_kept() -> None:
    """The same from a full object and from what an informer keeps of it."""
    desired = one(config_map("c", a="1"))
    full = live(desired.manifest)

    assert decide(desired, observe(full), CONTEXT).verdict == StepAction.KEEP
    assert decide(desired, observe(slim(full)), CONTEXT).verdict == StepAction.KEEP


def test_another_rendering_is_applied() -> None:
    """The hash on the object is not the one that is wanted."""
    before = one(config_map("c", a="1"))

    step = decide(one(config_map("c", a="2")), seen(before.manifest), CONTEXT)

    assert (step.verdict, step.missing) == (StepAction.CONFIGURE, ())


def test_a_field_that_is_no_longer_ours_is_applied_again() -> None:
    """The hash alone does not prove that nobody edited the object."""
    desired = one(config_map("c", a="1", b="2"))
    edited = live(desired.manifest)
    edited["metadata"]["managedFields"][0]["fieldsV1"]["f:data"].pop("f:a")

    step = decide(desired, observe(edited), CONTEXT)

    assert step.verdict == StepAction.CONFIGURE
    assert [each.field for each in step.missing] == ["data.a"]


def test_what_was_found_whole_before_is_not_believed_of_another_set_of_fields() -> None:
    """As an informer keeps it: seen whole twice, then edited, then whole again."""
    desired = one(config_map("c", a="1", b="2"))
    whole, edited = live(desired.manifest), live(desired.manifest)
    edited["metadata"]["managedFields"][0]["fieldsV1"]["f:data"].pop("f:a")

    verdicts = [
        decide(desired, observe(slim(each)), CONTEXT).verdict
        for each in (whole, whole, edited, edited, whole)
    ]

    assert verdicts == [StepAction.KEEP] * 2 + [StepAction.CONFIGURE] * 2 + [StepAction.KEEP]


def test_replicas_are_missed_when_the_autoscaler_that_set_them_is_gone() -> None:
    """Our own set of fields was enough beside an autoscaler's, and is not beside a person's."""
    desired = one(deployment("d", replicas=2))
    scaled = live(desired.manifest)
    scaled["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].pop("f:replicas")
    by: Object = {"operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    autoscaler = by | {"manager": "kube-controller-manager", "subresource": "scale"}
    scaled["metadata"]["managedFields"].append(autoscaler)
    assert decide(desired, observe(slim(scaled)), CONTEXT).verdict == StepAction.KEEP

    scaled["metadata"]["managedFields"][-1] = by | {"manager": "kubectl"}
    step = decide(desired, observe(slim(scaled)), CONTEXT)

    assert [each.field for each in step.missing] == ["spec.replicas"]


def test_fields_are_gone_through_once_however_often_a_status_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another resource version with the same set of fields is known to hold everything."""
    desired, looks = one(deployment("d", image="example.com/app:looked-at-once")), 0

    def counted(own: FieldSet, wanted: Object) -> list[UnownedField]:
        nonlocal looks
        looks += 1
        return uncovered(own, wanted)

    monkeypatch.setattr(planning, "uncovered", counted)
    for number in range(3):
        told = live(desired.manifest)
        told["metadata"]["resourceVersion"] = str(number)
        told["status"] = {"availableReplicas": number}
        assert decide(desired, observe(slim(told)), CONTEXT).verdict == StepAction.KEEP

    assert looks == 1


def test_proofs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many objects are looked at; what was forgotten is gone through again."""
    monkeypatch.setattr(planning, "MANY_PROOFS", 3)
    planning.PROOFS.clear()
    for number in range(10):
        desired = one(config_map(f"c{number}", a="1"))
        assert decide(desired, observe(slim(live(desired.manifest))), CONTEXT).verdict == "keep"
        assert 0 < len(planning.PROOFS) <= 3


def test_fields_of_others_are_no_reason_to_write() -> None:
    """A caBundle or an injected annotation is theirs."""
    desired = one(config_map("c", a="1"))
    shared = live(desired.manifest)
    shared["metadata"]["annotations"] = {**shared["metadata"]["annotations"], "theirs": "x"}
    shared["metadata"]["managedFields"].append(
        {"manager": "injector", "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}}
    )

    assert decide(desired, observe(shared), CONTEXT).verdict == StepAction.KEEP


def test_replicas_that_an_autoscaler_set_are_its_own() -> None:
    """They are neither drift nor applied; those that a person scaled are."""
    desired = one(deployment("d", replicas=2))
    scaled = live(desired.manifest)
    scaled["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].pop("f:replicas")
    by: Object = {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "subresource": "scale",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }
    scaled["metadata"]["managedFields"].append(by)

    step = decide(desired, observe(scaled), CONTEXT)
    assert step.verdict == StepAction.KEEP
    assert "replicas" not in step.manifest["spec"]
    assert desired.manifest["spec"]["replicas"] == 2

    by["manager"] = "kubectl"
    step = decide(desired, observe(scaled), CONTEXT)
    assert step.verdict == StepAction.CONFIGURE
    assert step.manifest["spec"]["replicas"] == 2


def test_an_object_of_another_set_is_refused_and_a_shared_namespace_left() -> None:
    """Neither is written."""
    theirs = desired_set(config_map("c"), namespace("n"), applyset=OTHER)
    mine = desired_set(config_map("c"), namespace("n"))
    verdicts = {
        ref.kind: decide(each, seen(theirs.objects[ref].manifest), CONTEXT).verdict
        for ref, each in mine.objects.items()
    }

    assert verdicts == {"ConfigMap": StepAction.REFUSE, "Namespace": StepAction.KEEP}

    orphan = StepContext(SET.id, adoptable=frozenset({OTHER.id}))
    (ref,) = [each for each in mine.objects if each.kind == "ConfigMap"]
    step = decide(mine.objects[ref], seen(theirs.objects[ref].manifest), orphan)
    assert step.verdict == StepAction.CONFIGURE


def test_an_object_that_goes_away_is_waited_for() -> None:
    """Applying to it would be lost."""
    desired = one(config_map("c"))
    going = seen(desired.manifest, deletionTimestamp="2026-01-01T00:00:00Z")

    assert decide(desired, going, CONTEXT).verdict == StepAction.WAIT


def test_the_go_operator_s_object_is_adopted() -> None:
    """Whether its annotation or its field manager tells."""
    desired = one(config_map("c"))
    bare = config_map("c")
    by_annotation = {
        **bare,
        "metadata": {**bare["metadata"], "annotations": {"manifestival": "new"}},
    }
    entry: Object = {"manager": "manifestival", "operation": "Update", "fieldsV1": {}}
    by_manager = {**bare, "metadata": {**bare["metadata"], "managedFields": [entry]}}

    assert decide(desired, observe(by_annotation), CONTEXT).verdict == StepAction.ADOPT
    assert decide(desired, observe(by_manager), CONTEXT).verdict == StepAction.ADOPT


def test_a_job_that_was_done_does_not_run_again_when_its_ttl_removes_it() -> None:
    """A changed one does."""
    desired = one(job("j"))
    done = StepContext(SET.id, done_jobs={"home/j": desired.digest})

    assert decide(desired, None, done).verdict == StepAction.KEEP
    assert decide(one(job("j", image="new")), None, done).verdict == StepAction.CREATE


def test_a_namespace_that_we_created_keeps_that_mark() -> None:
    """Applying without it would remove it, and the namespace would stay for ever."""
    desired = one(namespace("n", team="a"))
    made = live(desired.manifest)
    made["metadata"]["annotations"] = {
        **made["metadata"]["annotations"],
        well_known.CREATED_BY: SET.id,
        well_known.APPLIED_HASH: "old",
    }

    step = decide(desired, observe(made), CONTEXT)

    assert step.verdict == StepAction.CONFIGURE
    assert step.manifest["metadata"]["annotations"][well_known.CREATED_BY] == SET.id
    assert well_known.CREATED_BY not in desired.manifest["metadata"]["annotations"]


def test_waves_are_in_order_of_need() -> None:
    """And a custom resource waits for a webhook only when one looks at it."""
    hook: Object = {
        "name": "w",
        "clientConfig": {"service": {"namespace": "home", "name": "webhook"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["things"], "operations": ["*"]}],
    }
    config = manifest(VALIDATING_WEBHOOKS, "w", webhooks=[hook])
    thing = manifest(THINGS, "t")
    objects = [thing, deployment("d"), config_map("c"), config, cluster_role("r"), crd()]
    objects.append(service("s"))

    plan = make_plan(desired_set(*objects, namespace("n")), {}, CONTEXT)
    kinds = {wave: sorted(s.desired.ref.kind for s in steps) for wave, steps in plan.waves.items()}

    assert kinds == {
        Wave.FOUNDATION: ["CustomResourceDefinition", "Namespace"],
        Wave.ADDRESSES: ["Service"],
        Wave.RULES: ["ClusterRole", "ValidatingWebhookConfiguration"],
        Wave.MATERIAL: ["ConfigMap"],
        Wave.WORK: ["Deployment"],
        Wave.GATED: ["Thing"],
    }

    hook["rules"] = []
    plan = make_plan(desired_set(thing, config), {}, CONTEXT)
    assert Wave.GATED not in plan.waves


def test_what_takes_longest_is_written_first_in_its_wave() -> None:
    """Jobs and pods go on while the rest is written; the rest stays in order."""
    budgets = [manifest(BUDGETS, "b"), manifest(BUDGETS, "a")]
    objects = [*budgets, deployment("d"), job("j")]

    plan = make_plan(desired_set(*objects), {}, CONTEXT)

    assert [step.desired.ref.name for step in plan.waves[Wave.WORK]] == ["j", "d", "b", "a"]


def test_a_conversion_webhook_gates_its_kind() -> None:
    """A custom resource cannot be written while it cannot be converted."""
    webhook = {"clientConfig": {"service": {"namespace": "home", "name": "webhook"}}}
    converted = crd(conversion={"strategy": "Webhook", "webhook": webhook})

    plan = make_plan(desired_set(converted, manifest(THINGS, "t")), {}, CONTEXT)

    assert [step.desired.ref.kind for step in plan.waves[Wave.GATED]] == ["Thing"]


# A small world: names of ConfigMaps, ClusterRoles and Namespaces, wanted before and after.

contents = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["1", "2"]))


def world(maps: Mapping[str, str], roles: frozenset[str]) -> list[Object]:
    """Objects of several kinds."""
    return [
        *(
            config_map(name, "home" if value == "1" else "away", v=value)
            for name, value in maps.items()
        ),
        *(cluster_role(name) for name in roles),
        namespace("away"),
        crd(),
    ]


class Model:
    """A cluster of which only objects, and the parent's list, are kept."""

    def __init__(self) -> None:
        self.objects: dict[Ref, Object] = {}
        self.inventory = Inventory()
        self.version = 0

    def observed(self) -> dict[Ref, ObservedObject]:
        """All objects."""
        return {ref: observe(each) for ref, each in self.objects.items()}

    def members(self) -> list[SetMember]:
        """The members that can be found from the parent's list."""
        found = [each for each in self.observed().values() if each.part_of == SET.id]
        return [SetMember(DEPLOYMENTS, each) for each in found if self.inventory.covers([each.ref])]

    def run(self, objects: list[Object], stop_after: int) -> bool:
        """Apply and prune, and die after so many writes; whether it came to its end."""
        wanted = desired_set(*objects)
        plan = make_plan(wanted, self.observed(), CONTEXT)
        left = stop_after
        if not plan.is_empty:
            if left == 0:
                return False
            left -= 1
            self.inventory = self.inventory.widened(step.desired.ref for step in plan.steps)
        for step in plan.steps:
            if left == 0:
                return False
            left -= 1
            self.version += 1
            self.objects[step.desired.ref] = live(step.manifest, version=str(self.version))
        for member in prune(self.members(), wanted.refs, SET).members:
            if left == 0:
                return False
            left -= 1
            del self.objects[member.ref]
        if left == 0:
            return False
        self.inventory = Inventory().widened(wanted.refs)
        return True

    def state(self) -> dict[Ref, str]:
        """What is there, by hash."""
        return {ref: observe(each).applied_hash for ref, each in self.objects.items()}


@given(contents, contents, st.frozensets(st.sampled_from(["r", "s"])))
def test_killed_after_any_write_the_next_run_ends_where_an_unbroken_one_does(
    before: dict[str, str], after: dict[str, str], roles: frozenset[str]
) -> None:
    """Nothing is lost track of, and nothing is left over."""
    old, new = world(before, roles), world(after, roles ^ {"r"})
    whole = Model()
    assert whole.run(old, 1000)
    assert whole.run(new, 1000)

    for stop_after in range(1000):
        broken = Model()
        assert broken.run(old, 1000)
        finished = broken.run(new, stop_after)
        members = [ref for ref, each in broken.observed().items() if each.part_of == SET.id]
        assert broken.inventory.covers(members)
        assert broken.run(new, 1000)
        assert broken.state() == whole.state()
        assert broken.inventory == whole.inventory
        if finished:
            break


@given(contents, st.frozensets(st.sampled_from(["r", "s"])))
def test_applying_twice_changes_nothing(maps: dict[str, str], roles: frozenset[str]) -> None:
    """The second plan is empty, and so is the second prune."""
    objects = world(maps, roles)
    model = Model()
    model.run(objects, 1000)

    assert make_plan(desired_set(*objects), model.observed(), CONTEXT).is_empty
    assert prune(model.members(), desired_set(*objects).refs, SET).is_empty


@given(contents, contents)
def test_a_plan_never_deletes_what_it_applies(
    before: dict[str, str], after: dict[str, str]
) -> None:
    """Whatever was there before."""
    model = Model()
    model.run(world(before, frozenset()), 1000)
    wanted = desired_set(*world(after, frozenset({"r"})))

    deleted = {member.ref for member in prune(model.members(), wanted.refs, SET).members}

    assert deleted.isdisjoint(wanted.refs)


labels = st.sampled_from(["", SET.id, OTHER.id, "applyset-somebody-v1"])


@given(st.dictionaries(st.sampled_from("abcdef"), labels), st.booleans())
def test_prune_touches_nothing_without_our_label(marked: dict[str, str], created: bool) -> None:
    """Not even a namespace that carries our other mark."""
    members: list[SetMember] = []
    for name, label in marked.items():
        each = namespace(name) if name < "d" else config_map(name)
        each["metadata"] |= {"labels": {well_known.PART_OF: label}, "uid": name}
        if created:
            each["metadata"]["annotations"] = {well_known.CREATED_BY: SET.id}
        members.append(SetMember(NAMESPACES, observe(each)))

    pruning = prune(members, frozenset(), SET)

    touched = {each.ref.name for each in (*pruning.members, *pruning.released)}
    assert touched == {name for name, label in marked.items() if label == SET.id}


@pytest.mark.parametrize(
    ("created_by", "name", "deleted"),
    [(SET.id, "n", True), (OTHER.id, "n", False), ("", "n", False), (SET.id, "home", False)],
)
def test_only_namespaces_that_this_set_created_are_deleted(
    created_by: str, name: str, deleted: bool
) -> None:
    """And never the one in which the parent lives; those that stay are released."""
    each = one(namespace(name)).manifest
    each["metadata"]["annotations"][well_known.CREATED_BY] = created_by
    member = SetMember(NAMESPACES, seen(each))

    pruning = prune([member], frozenset(), SET)

    assert pruning.members == ([member] if deleted else [])
    assert pruning.released == (() if deleted else (member,))


def test_removal_goes_the_other_way() -> None:
    """Custom resources while their controllers live, aggregated roles before their sources."""
    aggregated = cluster_role("a", aggregationRule={"clusterRoleSelectors": [{"x": "y"}]})
    objects = [
        deployment("d"),
        config_map("c"),
        aggregated,
        cluster_role("r"),
        manifest(THINGS, "t"),
    ]
    members = [
        SetMember(each.resource, seen(each.manifest))
        for each in desired_set(*objects, crd()).objects.values()
    ]

    pruning = prune(members, frozenset(), SET)

    assert [
        (step, [each.ref.name for each in some]) for step, some in pruning.removals.items()
    ] == [
        (RemovalWave.CUSTOM, ["t"]),
        (RemovalWave.WORKLOADS, ["d"]),
        (RemovalWave.MATERIAL, ["c"]),
        (RemovalWave.AGGREGATED, ["a"]),
        (RemovalWave.ROLES, ["r"]),
    ]
    assert [each.ref.kind for each in pruning.released] == ["CustomResourceDefinition"]
    assert pruning.second_look == {"a"}


@pytest.mark.parametrize(
    ("wanted", "lost"),
    [("", "abc"), ("a", "bc"), ("ab", ""), ("abc", ""), ("x", "abc")],
)
def test_a_prune_tells_when_most_workloads_would_go(wanted: str, lost: str) -> None:
    """Jobs come and go, and do not count."""
    every = desired_set(*map(deployment, "abc"), job("j"), job("k"), config_map("c"))
    members = [SetMember(each.resource, seen(each.manifest)) for each in every.objects.values()]

    pruning = prune(members, desired_set(*map(deployment, wanted)).refs, SET)

    assert "".join(ref.name for ref in losses(members, pruning)) == lost
