"""What a plan is made of, decided without any cluster."""

from pathlib import Path

import msgspec
import pytest

from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Object, Resource
from knfleet.apply.change_set import FailureKind, MissingRight, ObjectFailure
from knfleet.apply.observe.metadata import ObservedObject
from knfleet.apply.plan.prune import SetMember, prune
from knfleet.apply.plan.steps import ApplyStep, StepAction
from knfleet.apply.refs import Ref
from knfleet.view.differences import FieldChange
from knfleet.view.images.image_list import images
from knfleet.view.plan.dry_run import DryRun, waits
from knfleet.view.plan.model import (
    FleetPlan,
    ObjectChange,
    PlanBasis,
    PlannedAction,
    PlanProblem,
    ResourcePlan,
)
from knfleet.view.plan.plan_file import PlanFileError, load, movements, save
from knfleet.view.plan.planner import (
    changes_of,
    detour,
    failure_text,
    new_images,
    spec_changes,
    stamp,
)
from knfleet.view.plan.preview import KINDS, PlanSubject
from knfleet.view.plan.subjects import choose, guarded_patch_of, with_version, written
from tests.support.objects import (
    SET,
    THINGS,
    config_map,
    crd,
    deployment,
    manifest,
    namespace,
    seen,
)
from tests.support.objects import desired_set as prepared

DIGEST = "example.com/queue@sha256:" + "0" * 64
PLAN = ResourcePlan(
    kind="KnativeServing", namespace="knative-serving", name="knative", target="hub"
)


def subject(
    name: str = "knative",
    resource: Resource = SERVINGS,
    *,
    at: str = "knative-serving",
    **spec: str,
) -> PlanSubject:
    """A custom resource as it is."""
    meta = {"name": name, "namespace": at, "uid": "u1", "generation": 3}
    found: Object = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": meta,
        "spec": spec,
    }
    return PlanSubject(KINDS[resource.kind], found, found)


def trial(wanted: Object, before: Object | None = None, after: Object | None = None) -> DryRun:
    """What a server said to one object."""
    (desired,) = prepared(wanted).objects.values()
    verdict = StepAction.CREATE if before is None else StepAction.CONFIGURE
    return DryRun(ApplyStep(desired, verdict), before, after or wanted)


def member(wanted: Object) -> SetMember:
    """An object that belongs to the set already."""
    (desired,) = prepared(wanted).objects.values()
    return SetMember(desired.resource, seen(desired.manifest))


def test_deletions_come_first() -> None:
    """Whoever reads only the first lines has read what may hurt."""
    trials = [
        trial(config_map("a", x="1")),
        trial(deployment("b", replicas=2), deployment("b"), deployment("b", replicas=2)),
    ]
    pruning = prune([member(config_map("z"))], (), SET)

    changes = changes_of(trials, pruning)

    assert [(each.act, each.ref.name) for each in changes] == [
        (PlannedAction.DELETE, "z"),
        (PlannedAction.CREATE, "a"),
        (PlannedAction.CHANGE, "b"),
    ]
    assert changes[2].fields == (FieldChange("spec.replicas", 1, 2),)


def test_an_object_that_only_gets_our_marks_does_not_change() -> None:
    """The operator writes them; nobody needs to know."""
    (desired,) = prepared(config_map("a", x="1")).objects.values()

    assert (
        changes_of(
            [trial(config_map("a", x="1"), config_map("a", x="1"), desired.manifest)],
            prune([], (), SET),
        )
        == ()
    )


def test_images_are_those_that_nothing_there_has_yet() -> None:
    """Of containers, and where Knative keeps images for pods that it makes later."""
    kept = ApplyStep(
        next(iter(prepared(deployment("a", "x/known:1")).objects.values())), StepAction.KEEP
    )
    trials = [
        trial(deployment("b", "x/new:2"), deployment("b", "x/old:1"), deployment("b", "x/new:2")),
        trial(deployment("c", "x/known:1")),
        trial(config_map("deployment", **{"queue-sidecar-image": DIGEST, "other": "x/y:1"})),
    ]

    assert new_images(trials, [kept]) == tuple(sorted([DIGEST, "x/new:2"]))


def test_images_of_jobs_and_caches_count() -> None:
    """Whatever has pods, and Images of Knative."""
    image = manifest(Resource("caching.internal.knative.dev", "v1alpha1", "Image", "images"), "q")
    image["spec"] = {"image": "x/cached:1"}
    cron: Object = {
        "kind": "CronJob",
        "spec": {
            "jobTemplate": {
                "spec": {
                    "template": {
                        "spec": {
                            "initContainers": [{"image": "x/init:1"}],
                            "containers": [{"image": "x/cron:1"}],
                        }
                    }
                }
            }
        },
    }

    assert images([image, cron]) == {"x/cached:1", "x/init:1", "x/cron:1"}


def test_what_lives_in_something_that_is_not_there_yet_cannot_be_tried() -> None:
    """Its namespace or its CRD comes with the same plan."""
    wanted = (config_map("a"), manifest(THINGS, "t", "other"), config_map("b", "other"))
    every = prepared(namespace("home"), crd(), *wanted)
    created = {Ref.of(namespace("home")), Ref.of(crd())}

    waiting = [
        ref.name
        for ref, desired in every.objects.items()
        if waits(ApplyStep(desired, StepAction.CREATE), created)
    ]

    assert sorted(waiting) == ["a", "t"]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("1.24", "; go to 1.22.1 first, one minor version at a time"),
        ("1.19", "; go to 1.20.0 first, one minor version at a time"),
        ("nonsense", ""),
    ],
)
def test_a_way_that_is_too_long_is_shown_its_first_step(wanted: str, text: str) -> None:
    """The newest release of the next minor version."""
    assert detour("1.21.0", wanted, ["1.24.0", "1.22.1", "1.22.0", "1.20.0"]) == text


def test_a_missing_right_is_named_with_what_to_grant() -> None:
    """Which verb, which kind, where."""
    ref = Ref("apps", "Deployment", "home", "a")
    denial = MissingRight("deployments", "apps", "patch", "home")

    text, about = failure_text(ObjectFailure(ref, FailureKind.FORBIDDEN, "no", denials=(denial,)))

    assert text.startswith("not allowed to patch deployments.apps in home; grant this")
    assert about == ref


def test_the_status_of_an_object_does_not_move_the_world() -> None:
    """A pod that becomes ready must not make a plan worthless; a changed field must."""
    ref = Ref("apps", "Deployment", "home", "a")
    spec: Object = {
        "manager": "knfleet",
        "operation": "Apply",
        "time": "1",
        "fieldsV1": {"f:spec": {}},
    }
    status: Object = {"manager": "kcm", "operation": "Update", "subresource": "status", "time": "2"}
    before = ObservedObject(ref, "u", "1", managed=(spec,))

    assert stamp(before) == stamp(ObservedObject(ref, "u", "2", managed=(spec, status)))
    assert stamp(before) != stamp(ObservedObject(ref, "u", "2", managed=({**spec, "time": "3"},)))
    assert stamp(before) != stamp(ObservedObject(ref, "other", "1", managed=(spec,)))


def test_exit_codes_are_those_of_the_design() -> None:
    """0 nothing, 2 changes, 1 when anything is in the way."""
    change = ObjectChange(PlannedAction.CREATE, Ref("", "ConfigMap", "a", "b"))
    changing = msgspec.structs.replace(PLAN, changes=(change,))
    failing = msgspec.structs.replace(PLAN, problems=(PlanProblem("no"),))

    assert FleetPlan((PLAN, PLAN)).exit_code == 0
    assert FleetPlan((PLAN, changing)).exit_code == 2
    assert FleetPlan((PLAN, msgspec.structs.replace(PLAN, is_new=True))).exit_code == 2
    assert FleetPlan((changing, failing)).exit_code == 1


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("knative", ["KnativeServing", "KnativeEventing"]),
        ("knative-serving/knative", ["KnativeServing"]),
        ("serving/knative", ["KnativeServing"]),
        ("KnativeEventing/knative", ["KnativeEventing"]),
        ("eventing/knative-eventing/knative", ["KnativeEventing"]),
        ("other", []),
    ],
)
def test_a_name_may_have_its_namespace_and_kind_before_it(name: str, found: list[str]) -> None:
    """As for `knfleet status`."""
    known = [subject(), subject("knative", EVENTINGS, at="knative-eventing")]

    assert [each.kind.resource.kind for each in choose(known, name)] == found


def test_a_version_is_the_only_thing_that_changes() -> None:
    """On the hub, too, what changes is told."""
    before = subject(version="1.22", other="x")

    after = with_version(before, "1.23")

    assert spec_changes(after) == (FieldChange("spec.version", "1.22", "1.23"),)
    assert written(after)["spec"] == {"version": "1.23", "other": "x"}
    assert before.manifest["spec"]["version"] == "1.22"


def test_a_custom_resource_is_written_only_as_it_was_seen() -> None:
    """The patch fails when the spec was changed meanwhile, and touches nobody's annotations."""
    before = subject(version="1.22")
    wanted = {**before.manifest, "spec": {"version": "1.23"}}
    wanted["metadata"] = {**wanted["metadata"], "labels": {"a/b": "c"}}

    assert guarded_patch_of(PlanSubject(before.kind, wanted, before.live)) == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/metadata/generation", "value": 3},
        {"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}},
        {"op": "add", "path": "/spec", "value": {"version": "1.23"}},
    ]


def sealed(**seal: object) -> ResourcePlan:
    """A plan of some world."""
    world = msgspec.structs.replace(PlanBasis("u1:3", "d1", {"ConfigMap a/b": "1"}), **seal)
    return msgspec.structs.replace(PLAN, seal=world)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"custom_resource": "u1:4"}, "it was changed since the plan was made"),
        ({"custom_resource": ""}, "it was deleted"),
        ({"desired": "d2"}, "the release files are not those"),
        ({"objects": {"ConfigMap a/b": "2"}}, "on hub, ConfigMap a/b changed since"),
        ({"objects": {}}, "on hub, ConfigMap a/b changed since"),
    ],
)
def test_a_world_that_moved_is_told(now: dict[str, object], words: str) -> None:
    """What exactly is different, and what to do."""
    (text,) = movements(sealed(), sealed(**now))

    assert words in text
    assert text.endswith("make the plan again")


def test_a_world_that_did_not_move_says_nothing() -> None:
    """Then the plan may be carried out."""
    assert movements(sealed(), sealed()) == []


def test_a_plan_is_saved_for_its_owner_alone(tmp_path: Path) -> None:
    """And is read back as it was."""
    path = tmp_path / "plan.json"
    save(path, FleetPlan((sealed(),)), [subject(version="1.23")])

    found = load(path)

    assert found.plans == (sealed(),)
    assert found.manifests[0]["spec"] == {"version": "1.23"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_plan_that_cannot_be_carried_out_is_not_saved(tmp_path: Path) -> None:
    """There would be nothing to do with it."""
    failing = msgspec.structs.replace(PLAN, problems=(PlanProblem("no"),))

    with pytest.raises(PlanFileError, match="KnativeServing knative-serving/knative cannot be"):
        save(tmp_path / "plan.json", FleetPlan((failing,)), [subject()])

    assert not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("nonsense", "is not a plan"),
        ('{"plans": [], "manifests": [], "format": "knfleet.dev/plan/v0"}', "another version"),
    ],
)
def test_a_file_that_is_no_plan_is_told(tmp_path: Path, content: str, words: str) -> None:
    """With the way to one."""
    path = tmp_path / "plan.json"
    path.write_text(content)

    with pytest.raises(PlanFileError, match=words):
        load(path)
    with pytest.raises(PlanFileError, match="cannot be read"):
        load(tmp_path / "nowhere")
