"""A plan as people read it."""

import msgspec
import pytest
from click.testing import CliRunner

from knfleet.apply.refs import Ref
from knfleet.cli.knative.plan import show
from knfleet.cli.knative.plan_text import change_lines, field_text, names, plans_text, wide
from knfleet.cli.main import knfleet
from knfleet.kube.yaml import load
from knfleet.view.differences import FieldChange
from knfleet.view.plan.model import (
    FleetPlan,
    ObjectChange,
    PlannedAction,
    PlanProblem,
    ResourcePlan,
)

PLAN = ResourcePlan(
    kind="KnativeServing",
    namespace="knative-serving",
    name="knative",
    target="fleet/london",
    installed="1.22.0",
    wanted="1.23.0",
    custom_resource=(FieldChange("spec.version", "1.22", "1.23"),),
    changes=(
        ObjectChange(PlannedAction.DELETE, Ref("apps", "Deployment", "knative-serving", "old")),
        ObjectChange(PlannedAction.CREATE, Ref("", "ConfigMap", "knative-serving", "new")),
        ObjectChange(
            PlannedAction.CHANGE,
            Ref("apps", "Deployment", "knative-serving", "controller"),
            (
                FieldChange("spec.replicas", 1, 2),
                FieldChange("spec.paused", after=True),
                FieldChange("spec.minReadySeconds", before=3),
            ),
        ),
    ),
    images=("example.com/controller:1.23.0",),
)
IDLE = ResourcePlan(
    kind="KnativeEventing",
    namespace="knative-eventing",
    name="knative",
    target="hub",
    installed="1.23.0",
    wanted="1.23.0",
)
LOST = msgspec.structs.replace(IDLE, name="lost", wanted="", problems=(PlanProblem("no way in"),))


def test_a_plan_is_read_from_the_deletions_on() -> None:
    """Every line has one thing to say."""
    assert plans_text(FleetPlan((PLAN,))).splitlines() == [
        "KnativeServing knative-serving/knative on fleet/london (1.22.0 → 1.23.0)",
        "  spec.version: 1.22 → 1.23",
        "  DELETE  Deployment knative-serving/old",
        "  create  ConfigMap knative-serving/new",
        "  change  Deployment knative-serving/controller",
        "      spec.replicas: 1 → 2",
        "      spec.paused: + true",
        "      spec.minReadySeconds: - 3",
        "  images to pull:",
        "    example.com/controller:1.23.0",
        "  1 to delete, 1 to create, 1 to change.",
    ]


def test_one_that_fails_hides_no_other() -> None:
    """All are there, and the last line counts them."""
    text = plans_text(FleetPlan((PLAN, IDLE, LOST)))

    assert "  ERROR  no way in" in text
    assert "  Nothing to do." in text
    assert text.endswith(
        "3 custom resources: 1 would change, 1 would not, 1 cannot be planned or carried out."
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (FieldChange("data.token", is_secret=True), "data.token: (changed)"),
        (FieldChange("a", "", " x"), 'a: "" → " x"'),
        (FieldChange("a", "one\ntwo", {"b": [1]}), 'a: "one\\ntwo" → {"b": [1]}'),
        (FieldChange("a", "1", 1), "a: 1 → 1"),
        (FieldChange("a", after="x" * 100), f"a: + {'x' * 40} … {'x' * 17}"),
    ],
)
def test_values_stand_on_one_line(change: FieldChange, text: str) -> None:
    """Long ones are cut, those of Secrets are not there at all."""
    assert field_text(change) == text


def test_of_long_texts_only_the_lines_that_differ_are_shown() -> None:
    """And not too many of them."""
    before = "\n".join(["same", "old", *map(str, range(20)), "same"])
    after = "same\nnew\nsame"
    change = ObjectChange(
        PlannedAction.CHANGE,
        Ref("", "ConfigMap", "a", "b"),
        (FieldChange("data.short", "a\n---\n", "a\nc\n"), FieldChange("data.long", before, after)),
    )

    lines = list(change_lines(change))

    assert lines[:6] == [
        "  change  ConfigMap a/b",
        "      data.short:",
        "        - ---",
        "        + c",
        "      data.long:",
        "        - old",
    ]
    assert lines[-1] == "        … and 14 more lines; -o json shows all"
    assert not [line for line in lines if "same" in line]


def test_wide_has_a_row_for_each_field_with_whole_values() -> None:
    """For those who search."""
    long = msgspec.structs.replace(PLAN, custom_resource=(FieldChange("a", after="x" * 100),))

    lines = wide(FleetPlan((long, LOST))).splitlines()

    assert len(lines) == 1 + 1 + 2 + 3 + 1
    assert "x" * 100 in lines[1]
    assert "no way in" in lines[-1]


def test_programs_read_the_same_from_json_and_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that a plan says is in both."""
    show(FleetPlan((PLAN, LOST)), "json")
    as_json = msgspec.json.decode(capsys.readouterr().out)
    show(FleetPlan((PLAN, LOST)), "yaml")
    assert load(capsys.readouterr().out) == as_json


def test_names_are_those_of_kubectl() -> None:
    """Deletions first here, too."""
    assert names(FleetPlan((PLAN,))) == [
        "deployment.apps/old",
        "configmap/new",
        "deployment.apps/controller",
    ]


@pytest.mark.parametrize("arguments", [[], ["knative", "--all"], ["--all", "-f", "-"]])
def test_it_must_be_clear_what_to_plan(arguments: list[str]) -> None:
    """One of the three, which is said."""
    answer = CliRunner().invoke(knfleet, ["plan", *arguments])

    assert answer.exit_code == 2
    assert "the NAME of a custom resource, -f FILE or --all" in answer.output


def labelled(name: str, *more: FieldChange) -> ObjectChange:
    """An object whose version label changes."""
    label = FieldChange("metadata.labels[app.kubernetes.io/version]", "1.23.0", "1.22.1")
    ref = Ref("", "ConfigMap", "knative-serving", name)
    return ObjectChange(PlannedAction.CHANGE, ref, (label, *more))


def test_what_changes_alike_in_many_objects_is_one_line() -> None:
    """Objects with further changes are listed with those alone."""
    changes = [labelled(f"c{number}") for number in range(37)]
    changes.append(labelled("odd", FieldChange("data.a", "1", "2")))
    plan = msgspec.structs.replace(PLAN, changes=tuple(changes), images=())

    text = plans_text(FleetPlan((plan,))).splitlines()

    assert text[2:] == [
        "  change  ConfigMap knative-serving/odd",
        "      data.a: 1 → 2",
        "  38 objects: label app.kubernetes.io/version 1.23.0 → 1.22.1",
        "  38 to change.",
    ]
    assert len(wide(FleetPlan((plan,))).splitlines()) == 1 + 1 + 38 + 1


def test_what_changes_alike_in_few_objects_is_listed() -> None:
    """As is what differs in a value, and what is created."""
    few = [labelled(f"c{number}") for number in range(4)]
    values = [
        ObjectChange(
            PlannedAction.CHANGE,
            Ref("", "ConfigMap", "knative-serving", f"v{number}"),
            (FieldChange("data.a", after=number),),
        )
        for number in range(9)
    ]
    plan = msgspec.structs.replace(PLAN, changes=(*few, *values), images=())

    assert " objects: " not in plans_text(FleetPlan((plan,)))
