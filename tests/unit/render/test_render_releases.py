"""The real releases, rendered."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from knfleet.api.knative.resources import Knative
from knfleet.api.meta import Object
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.render.drafts import draft
from knfleet.render.pipeline import RenderFacts, render
from tests.unit.render.samples import FACTS, eventing, rendered, serving

Load = Callable[..., list[Object]]

IMAGE = re.compile(r"^[a-z0-9.-]+(:[0-9]+)?/[^\s@]+(@sha256:[0-9a-f]{64}|:v?[0-9][\w.-]*)$")
OLD = re.compile(
    r"(?<![\w-])(knative-serving|knative-eventing|kourier-system|knative-sources?)(?![\w-])"
)
INGRESSES = ("istio", "contour", "kourier", "gateway-api")
SOURCES = ("ceph", "github", "gitlab", "kafka", "rabbitmq", "redis")
SERVINGS = ("1.20.3", "1.21.3", "1.22.1", "1.23.0")
EVENTINGS = ("1.20.3", "1.21.4", "1.22.2", "1.23.0")
TLS = {"config": {"features": {"transport-encryption": "strict"}}}


def whole_serving(release: Load, version: str = "1.23.0") -> list[Object]:
    minor = version.rpartition(".")[0]
    ingresses = [f"ingress/{minor}/{name}" for name in INGRESSES]
    return release(f"knative-serving/{version}", *ingresses, "security-guard/0.6")


def whole_eventing(release: Load, version: str = "1.23.0") -> list[Object]:
    minor = version.rpartition(".")[0]
    sources = [f"eventing-source/{minor}/{name}" for name in SOURCES]
    return release(f"knative-eventing/{version}", *sources)


def all_ingresses(spec: Object) -> Object:
    ingress = {name: {"enabled": True} for name in INGRESSES}
    return {**spec, "ingress": ingress, "security": {"securityGuard": {"enabled": True}}}


def texts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text in a value, with the way to it."""
    if isinstance(value, dict):
        for name, inner in cast("Object", value).items():
            yield from texts(inner, (*path, name))
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from texts(inner, path)
    elif isinstance(value, str):
        yield path, value


@pytest.mark.parametrize("version", SERVINGS)
def test_serving_of_any_version_leaves_its_old_namespaces(release: Load, version: str):
    """No object, and no word that means a namespace, stays behind."""
    cr = serving(all_ingresses({}), "other")

    assert left_behind(render(whole_serving(release, version), cr, FACTS).objects) == []


@pytest.mark.parametrize("version", EVENTINGS)
def test_eventing_of_any_version_leaves_its_old_namespaces(release: Load, version: str):
    """No object, and no word that means a namespace, stays behind."""
    cr = eventing(TLS, "other")

    assert left_behind(render(whole_eventing(release, version), cr, FACTS).objects) == []


def left_behind(objects: list[Object]) -> list[tuple[str, tuple[str, ...], str]]:
    """Texts that still mean an old namespace; labels that are called like one mean no namespace."""
    return [
        (manifest["kind"], path, text[:80])
        for manifest in objects
        for path, text in texts(manifest)
        if OLD.search(text)
        and path[-1] not in ("_example", "app.kubernetes.io/name")
        and "objectSelector" not in path
    ]


def test_every_object_is_there_once_and_the_release_is_as_it_was(release: Load):
    """CRDs, Namespaces and ConfigMaps come several times."""
    for objects, cr in both(release):
        before = msgspec.json.encode(objects)

        result = render(objects, cr, FACTS).objects

        identities = [draft(manifest).identity for manifest in result]
        assert len(set(identities)) == len(identities) < len(objects)
        assert sum(manifest["kind"] == "Namespace" for manifest in result) == 1
        assert before == msgspec.json.encode(objects)
        assert msgspec.json.encode(result) == msgspec.json.encode(
            render(objects, cr, FACTS).objects
        )


def both(release: Load) -> list[tuple[list[Object], Knative]]:
    return [
        (whole_serving(release), serving(all_ingresses({}))),
        (whole_eventing(release), eventing(TLS)),
    ]


def test_every_image_is_reached_by_the_registry(release: Load):
    """By `default` those of pods and caching Images, by `override` all others."""
    for objects, cr in both(release):
        by_default = {"registry": {"default": "mirror.test/${NAME}"}}
        override = {key: f"mirror.test/{key}" for key in out_of_reach(objects)}
        spec = {"registry": {**by_default["registry"], "override": override}}
        wanted = serving(all_ingresses(spec)) if "Serving" in cr.resource.kind else eventing(spec)

        result = rendered(objects, wanted).objects

        assert override
        assert [
            (manifest["kind"], path, text)
            for manifest in result
            for path, text in texts(manifest)
            if IMAGE.match(text) and "_example" not in path and not text.startswith("mirror.test/")
        ] == []


def out_of_reach(objects: list[Object]) -> set[str]:
    """Names of variables and entries that hold an image."""
    found: set[str] = set()
    for manifest in objects:
        if manifest["kind"] == "ConfigMap":
            data: Object = manifest.get("data") or {}
            found |= {key for key, text in data.items() if IMAGE.match(text)}
        for container in containers(manifest):
            variables: list[Object] = container.get("env") or []
            for variable in variables:
                if IMAGE.match(variable.get("value") or ""):
                    found.add(variable["name"])
    return found


def containers(manifest: Object) -> list[Object]:
    if manifest["kind"] not in ("Deployment", "StatefulSet", "DaemonSet", "Job"):
        return []
    spec = manifest["spec"]["template"]["spec"]
    return [*spec["containers"], *(spec.get("initContainers") or [])]


def test_lists_that_are_maps_for_the_api_server_have_no_duplicates(release: Load):
    """Server-side apply refuses an object with two entries of one key."""
    spec: Object = {"registry": {"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}}
    for objects, cr in both(release):
        wanted = serving(all_ingresses(spec)) if "Serving" in cr.resource.kind else eventing(spec)
        for manifest in rendered(objects, wanted, minimum_kubernetes="v1.30.0").objects:
            for container in containers(manifest):
                assert_unique(container, "env", "name")
                assert_unique(container, "volumeMounts", "mountPath")
            if containers(manifest):
                pod = manifest["spec"]["template"]["spec"]
                assert_unique(pod, "volumes", "name")
                assert_unique(pod, "imagePullSecrets", "name")
            assert_unique(manifest, "webhooks", "name")


def assert_unique(part: Object, field: str, key: str) -> None:
    entries: list[Object] = part.get(field) or []
    keys = [str(entry[key]) for entry in entries]
    assert sorted(set(keys)) == sorted(keys), (field, keys)


def test_the_names_of_jobs_are_upstreams(release: Load):
    """Those of a real release."""
    jobs = {
        manifest["metadata"]["name"]
        for objects, cr in both(release)
        for manifest in rendered(objects, cr).objects
        if manifest["kind"] == "Job"
    }

    assert {
        "storage-version-migration-serving-serving-1.23.0",
        "cleanup-serving-serving-1.23.0",
        "storage-version-migration-eventing-eventing-1.23.0",
        "kafka-controller-post-install-eventing-1.23.0",
        "knative-kafka-storage-version-migrator-eventing-1.23.0",
    } <= jobs


@pytest.mark.parametrize(
    ("cr", "deployments"),
    [
        (
            serving({"ingress": {"kourier": {"enabled": True}}}, "other"),
            {"activator", "autoscaler", "controller", "webhook", "3scale-kourier-gateway"},
        ),
        (
            eventing({"source": {"kafka": {"enabled": True}}}, "other"),
            {"eventing-controller", "eventing-webhook", "mt-broker-ingress", "kafka-controller"},
        ),
    ],
)
async def test_what_a_bundle_holds_can_be_rendered(
    bundle_root: Path, tmp_path: Path, cr: Knative, deployments: set[str]
):
    """From the custom resource to the objects, with nothing in between."""
    bundle = await Releases(bundle_root, cache=ParsedCache(tmp_path)).load(cr)

    result = render(bundle.objects(), cr, RenderFacts(version=bundle.version)).objects

    found = {o["metadata"]["name"] for o in result if o["kind"] == "Deployment"}
    assert deployments <= found
    assert {"other", None} == {manifest["metadata"].get("namespace") for manifest in result}


def test_a_plain_release_gives_no_warnings(release: Load):
    """Warnings are for what users wrote."""
    assert [rendered(objects, cr).warnings for objects, cr in both(release)] == [[], []]
