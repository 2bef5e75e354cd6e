"""What a revision means for a cluster: overrides, variables, versions on the way."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knfleet.api.meta import Key, Object
from knfleet.hub.knativefleet.template.fleet_template import (
    content_hash,
    content_of,
    desired,
    merged,
)
from knfleet.hub.knativefleet.template.upgrade_steps import (
    is_reached,
    next_version,
    steps_between,
)
from knfleet.hub.knativefleet.template.variables import (
    MissingClusterVariable,
    ProfileFacts,
    replaced,
)

FACTS = ProfileFacts("c1", {"region": "eu"}, {"zone": "z1"})
PROFILE = Key("fleet", "c1")


def override(name: str, clusters: Object, **patches: Object) -> Object:
    return {"name": name, "clusters": clusters, **patches}


def test_overrides_are_applied_in_order_to_the_clusters_that_they_name():
    content = {
        "serving": {"spec": {"version": "1.22.0", "config": {"a": {"x": "1"}, "b": {"y": "2"}}}},
        "overrides": [
            override(
                "eu",
                {"selector": {"matchLabels": {"region": "eu"}}},
                serving={"config": {"b": None}},
            ),
            override(
                "us", {"selector": {"matchLabels": {"region": "us"}}}, serving={"version": "9"}
            ),
            override("one", {"names": ["c1"]}, serving={"config": {"a": {"x": "3"}}}),
        ],
    }

    made = desired(content, FACTS, PROFILE).components["serving"]

    assert made.spec == {
        "version": "1.22.0",
        "config": {"a": {"x": "3"}},
        "clusterProfileRef": {"name": "c1", "namespace": "fleet"},
    }


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ({"nope": 1}, "override o: serving has no field nope"),
        ({"clusterProfileRef": {"name": "x"}}, "override o: clusterProfileRef is set by the fleet"),
        ({"high-availability": {"replicas": "many"}}, "serving: spec.high-availability.replicas"),
        ({"config": {"a": {"b": "{{cluster.labels.team}}"}}}, "has no label team"),
        ({"config": {"a": {"b": "{{cluster.properties.p}}"}}}, "has no property p"),
    ],
)
def test_what_makes_no_sense_for_a_cluster_is_named(patch: Object, problem: str):
    content: Object = {
        "serving": {"spec": {}},
        "overrides": [override("o", {"names": ["c1"]}, serving=patch)],
    }

    assert problem in desired(content, FACTS, PROFILE).problem
    assert desired(content, ProfileFacts("c2"), Key("fleet", "c2")).problem == ""


def test_variables_are_replaced_once_in_texts_and_names_of_fields():
    value = {"{{cluster.name}}.x": ["{{ cluster.labels.region }}-{{cluster.properties.zone}}", 1]}

    assert replaced(value, FACTS) == {"c1.x": ["eu-z1", 1]}
    assert replaced("{{.Name}}", FACTS) == "{{.Name}}"
    tricky = ProfileFacts("c1", {"a": "{{cluster.name}}"})
    assert replaced("{{cluster.labels.a}}", tricky) == "{{cluster.name}}"
    with pytest.raises(MissingClusterVariable):
        replaced("{{cluster.labels.none}}", FACTS)


def test_only_templates_and_overrides_make_a_revision():
    spec: Object = {"serving": {"spec": {"version": "1"}}, "paused": True, "strategy": {"x": 1}}

    assert content_of(spec) == {"serving": {"spec": {"version": "1"}}}
    assert content_hash({"a": 1, "b": None}) == content_hash({"b": None, "a": 1})
    assert content_hash({"a": 1, "b": None}) != content_hash({"a": 1})


VALUES: Any = st.recursive(
    st.none() | st.integers(0, 3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_merge_patch_that_is_applied_twice_changes_nothing_more(target: Object, patch: Object):
    once = merged(target, patch)

    assert merged(once, patch) == once


@pytest.mark.parametrize(
    ("installed", "target", "steps"),
    [
        ("1.20.3", "1.23.0", ("1.21", "1.22", "1.23.0")),
        ("1.23.1", "1.20.0", ("1.22", "1.21", "1.20.0")),
        ("1.22.0", "1.23", ("1.23",)),
        ("", "1.23.0", ("1.23.0",)),
        ("1.20.0", "latest", ("latest",)),
        ("1.20.0", "", ("",)),
        ("0.26.0", "1.0.0", ("1.0.0",)),
    ],
)
def test_a_version_is_reached_one_minor_version_at_a_time(
    installed: str, target: str, steps: tuple[str, ...]
):
    assert steps_between(installed, target) == steps
    assert next_version(installed, target) == steps[0]


def test_a_version_is_reached_when_the_template_names_it_or_its_minor():
    assert is_reached("1.23", "1.23.4")
    assert is_reached("v1.23.4", "1.23.4")
    assert is_reached("", "1.23.4")
    assert not is_reached("1.23.0", "1.23.4")
    assert not is_reached("1.23", "")
