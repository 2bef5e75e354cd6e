"""Rendering as a whole: pure, in order, each object once."""

from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knfleet.api.meta import Object
from knfleet.render.drafts import Draft
from knfleet.render.errors import RenderError
from knfleet.render.pipeline import RenderFacts, render
from tests.unit.render.samples import (
    FACTS,
    OWNER,
    autoscaler,
    config_map,
    container,
    eventing,
    job,
    rendered,
    serving,
    thing,
    workload,
)

RELEASE: list[Object] = [
    thing("v1", "Namespace", "knative-serving"),
    thing(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "widgets.example.com",
        spec={
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget"},
            "conversion": {"webhook": {"clientConfig": {"service": {"namespace": "x"}}}},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    ),
    config_map("config-network", a="1"),
    workload("activator", container("activator", env=[{"name": "A", "value": "1"}])),
    workload("controller"),
    autoscaler("activator", 1, 20),
    job("migrate-"),
    thing("v1", "Service", "webhook", spec={"selector": {"app": "webhook"}}),
    thing("policy/v1", "PodDisruptionBudget", "webhook-pdb", spec={"minAvailable": "80%"}),
    thing("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "b", subjects=[{"namespace": "x"}]),
]

names = st.sampled_from(["a", "b", "network", "config-network", "activator", "migrate-", "webhook"])
maps = st.dictionaries(st.sampled_from(list("abcdefgh")), st.text("xyz", max_size=3), max_size=6)
overrides = st.fixed_dictionaries(
    {"name": names},
    optional={
        "labels": maps,
        "annotations": maps,
        "nodeSelector": maps,
        "replicas": st.integers(0, 9),
        "hostNetwork": st.booleans(),
        "env": st.lists(
            st.fixed_dictionaries(
                {
                    "container": st.just("activator"),
                    "envVars": st.lists(
                        st.fixed_dictionaries({"name": st.sampled_from("ABC"), "value": st.text()}),
                        max_size=3,
                    ),
                }
            ),
            max_size=2,
        ),
        "resources": st.lists(
            st.fixed_dictionaries({"container": st.just("activator"), "limits": maps}), max_size=2
        ),
    },
)
specs: st.SearchStrategy[Object] = st.fixed_dictionaries(
    cast("dict[str, st.SearchStrategy[Any]]", {}),
    optional={
        "config": st.dictionaries(names, maps, max_size=3),
        "registry": st.fixed_dictionaries(
            {"default": st.sampled_from(["", "r/${NAME}"]), "override": maps}
        ),
        "high-availability": st.fixed_dictionaries({"replicas": st.integers(0, 9)}),
        "workloads": st.lists(overrides, max_size=3),
        "deployments": st.lists(overrides, max_size=2),
        "namespace": st.fixed_dictionaries({"labels": maps}),
        "namespaceConfiguration": st.fixed_dictionaries({"annotations": maps}),
        "services": st.lists(
            st.fixed_dictionaries({"name": names, "labels": maps, "selector": maps}), max_size=2
        ),
    },
)


def reordered(value: Any) -> Any:
    """The same value with the keys of its maps in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list[Any](value))}  # pyright: ignore[reportUnknownArgumentType] # any map
    if isinstance(value, list):
        return [reordered(element) for element in value]  # pyright: ignore[reportUnknownVariableType] # any list
    return value


@given(specs, st.sampled_from(["knative-serving", "other"]))
@settings(max_examples=60, deadline=None)
def test_rendering_is_pure_and_repeatable(spec: Object, namespace: str):
    """Equal bytes twice, whatever order the user's keys have; the release stays as it was."""
    before = msgspec.json.encode(RELEASE)
    facts = RenderFacts(version="1.23.0", owner=OWNER)

    first = render(RELEASE, serving(spec, namespace), facts)
    second = render(RELEASE, serving(spec, namespace), facts)
    mirrored = render(RELEASE, serving(reordered(spec), namespace), facts)

    assert msgspec.json.encode(first) == msgspec.json.encode(second)
    assert msgspec.json.encode(first) == msgspec.json.encode(mirrored)
    assert before == msgspec.json.encode(RELEASE)


@given(specs)
@settings(max_examples=40, deadline=None)
def test_rendering_what_was_rendered_changes_no_setting_again(spec: Object):
    """Nothing is appended twice: lists that are maps for the API server have no duplicates."""
    objects = rendered(RELEASE, serving(spec)).objects

    for manifest in objects:
        template = manifest.get("spec", {}).get("template", {})
        for found in template.get("spec", {}).get("containers", []):
            variables = [variable["name"] for variable in found.get("env", [])]
            assert sorted(set(variables)) == sorted(variables)


scalars = st.none() | st.booleans() | st.integers() | st.text("ab", max_size=2)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "template", "containers", "env", "name", "data", "webhooks", "metadata"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
kinds = [
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("v1", "Namespace"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io/v1", "APIService"),
    ("cert-manager.io/v1", "Certificate"),
    ("networking.istio.io/v1", "Gateway"),
    ("caching.internal.knative.dev/v1alpha1", "Image"),
]
EVERYTHING: Object = {
    "high-availability": {"replicas": 2},
    "registry": {"default": "r/${NAME}", "imagePullSecrets": [{"name": "s"}]},
    "config": {"x": {"a": "b"}},
    "workloads": [{"name": "x", "labels": {"a": "b"}, "replicas": 2, "hostNetwork": True}],
    "services": [{"name": "x", "selector": {"a": "b"}}],
    "podDisruptionBudgets": [{"name": "x", "minAvailable": 1}],
}


@given(
    st.sampled_from(kinds),
    st.dictionaries(st.sampled_from(["spec", "data", "webhooks", "subjects"]), anything),
)
@settings(max_examples=300, deadline=None)
def test_an_object_of_any_form_is_rendered_or_named(kind: tuple[str, str], fields: Object):
    """An additional manifest may hold anything; nothing but a RenderError may come of it."""
    manifest = thing(*kind, "x", **fields)

    for cr in (serving(EVERYTHING, "other"), eventing(EVERYTHING, "other")):
        try:
            render([manifest], cr, RenderFacts(version="1", minimum_kubernetes="v1.30.0"))
        except RenderError as error:
            message = str(error)
        else:
            continue
        assert f"{cr.resource.kind} other/knative: {kind[1]} x: " in message


def test_of_equal_objects_the_last_one_stays_in_the_place_of_the_first():
    """Releases repeat CRDs; plugins bring ConfigMaps that are there already."""
    first = config_map("config-deployment", a="1")
    first["apiVersion"] = "v1"
    last = config_map("config-deployment", b="2")
    last["metadata"]["namespace"] = "elsewhere"

    objects = rendered([first, config_map("x"), last], serving()).objects

    assert [found["metadata"]["name"] for found in objects] == ["config-deployment", "x"]
    assert objects[0]["data"] == {"b": "2"}


def test_objects_are_equal_whatever_version_they_are_written_in():
    """Group, kind, namespace and name make an object."""
    old = thing("policy/v1beta1", "PodDisruptionBudget", "x", spec={})
    new = thing("policy/v1", "PodDisruptionBudget", "x", spec={})
    other = thing("example.com/v1", "PodDisruptionBudget", "x", spec={})

    objects = rendered([old, new, other], serving()).objects

    assert [found["apiVersion"] for found in objects] == ["policy/v1", "example.com/v1"]


def test_lists_are_taken_apart():
    """kubectl writes several objects as a List."""
    inner = {"apiVersion": "v1", "kind": "ConfigMapList", "items": [config_map("b")]}
    manifest = {"apiVersion": "v1", "kind": "List", "items": [config_map("a"), inner]}

    objects = rendered([manifest], serving()).objects

    assert [found["metadata"]["name"] for found in objects] == ["a", "b"]


@pytest.mark.parametrize(
    "manifest",
    [{}, {"kind": "X"}, {"kind": "X", "metadata": {}}, {"kind": "X", "metadata": {"name": 1}}],
)
def test_what_is_no_object_is_refused(manifest: Object):
    """With the custom resource named."""
    with pytest.raises(RenderError, match="KnativeServing knative-serving/knative: "):
        rendered([manifest], serving())


def test_settings_for_what_is_not_there_are_warned_of():
    """They do nothing, and nothing fails."""
    spec: Object = {
        "config": {"netwrok": {"a": "b"}, "network": {"a": "b"}},
        "deployments": [{"name": "gone"}],
        "workloads": [
            {"name": "migrate-", "labels": {"a": "b"}},
            {"name": "activator", "resources": [{"container": "activater"}]},
        ],
        "services": [{"name": "webhook"}, {"name": "gone"}],
        "podDisruptionBudgets": [{"name": "gone", "minAvailable": 1}],
    }

    assert rendered(RELEASE, serving(spec)).warnings == [
        "spec.config.netwrok: the release has no ConfigMap netwrok or config-netwrok",
        "spec.deployments[0]: the release has no workload gone",
        "spec.workloads[1]: activator has no container activater",
        "spec.services[1]: the release has no Service gone",
        "spec.podDisruptionBudgets[0]: the release has no PodDisruptionBudget gone",
    ]


def test_steps_of_others_run_after_the_label_and_before_the_ingress():
    """Where upstream's platform hook runs."""
    seen: list[tuple[str, str]] = []

    def look(draft: Draft) -> None:
        seen.append((draft.meta["labels"]["app.kubernetes.io/name"], draft.namespace))

    render([thing("v1", "Service", "knative-local-gateway")], serving(), FACTS, extra=[look])

    assert seen == [("knative-serving", "knative-serving")]
