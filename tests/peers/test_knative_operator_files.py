"""Our reading of the Knative Operator's own files: its bundle, and its CRDs."""

from pathlib import Path
from typing import Any

import pytest

from knfleet.api.crds.generator import definitions
from knfleet.api.knative.resources import Knative, KnativeEventing, KnativeServing
from knfleet.api.schema import decode
from knfleet.kube.yaml import load_all
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.release.source.pull import problems
from knfleet.release.source.sources import GoModuleSource

Schema = dict[str, Any]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> ParsedCache:
    """A cache that all tests here share."""
    return ParsedCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
async def root() -> Path:
    """The bundle that the Knative Operator's module brings."""
    return await GoModuleSource().fetch()


def test_every_file_is_read(root: Path, cache: ParsedCache):
    assert problems(root, cache) == []


def custom_resource(kind: type[KnativeServing | KnativeEventing], **spec: Any) -> Knative:
    """A custom resource with a spec."""
    return decode({"metadata": {"name": "a", "namespace": "b"}, "spec": spec}, kind)


ON = {"enabled": True}


@pytest.mark.parametrize(
    ("resource", "count"),
    [
        (custom_resource(KnativeServing, ingress={}), 75),
        (custom_resource(KnativeServing), 75 + 13),
        (custom_resource(KnativeServing, ingress={"kourier": ON, "gateway-api": ON}), 75 + 13 + 8),
        (custom_resource(KnativeServing, ingress={}, security={"securityGuard": ON}), 75 + 10),
        (custom_resource(KnativeEventing), 171),
        (custom_resource(KnativeEventing, source={"kafka": ON}), 171 + 43),
    ],
)
async def test_the_newest_release_has_all_its_objects(
    root: Path, cache: ParsedCache, resource: Knative, count: int
):
    bundle = await Releases(root, cache=cache).load(resource)

    assert bundle.version == "1.23.0"
    assert len(bundle.objects()) == count


async def test_every_release_can_be_loaded_with_everything_on(root: Path, cache: ParsedCache):
    releases = Releases(root, cache=cache)
    ingress = dict.fromkeys(("istio", "contour", "kourier", "gateway-api"), ON)
    source = dict.fromkeys(("ceph", "github", "gitlab", "kafka", "rabbitmq", "redis"), ON)
    resources = [
        *(
            custom_resource(
                KnativeServing, version=version, ingress=ingress, security={"securityGuard": ON}
            )
            for version in releases.versions("serving")
        ),
        *(
            custom_resource(KnativeEventing, version=version, source=source)
            for version in releases.versions("eventing")
        ),
    ]

    for resource in resources:
        bundle = await releases.load(resource)
        assert bundle.version == resource.spec.version

    assert len(resources) == 24


async def test_every_field_of_its_custom_resources_is_one_of_ours(root: Path):
    """Whoever comes from it keeps what they wrote."""
    theirs: dict[str, Schema] = {}
    for file in (root.parents[2] / "config" / "crd" / "bases").glob("*.yaml"):
        theirs |= {crd["metadata"]["name"]: crd for crd in load_all(file.read_bytes())}
    ours = {crd["metadata"]["name"]: crd for crd in definitions()}

    assert len(theirs) == 2
    for name, crd in theirs.items():
        assert missing(schema_of(crd), schema_of(ours[name]), "") == []
        assert crd["spec"]["names"] == ours[name]["spec"]["names"]


def schema_of(crd: Schema) -> Schema:
    """The schema of a CRD's only version."""
    (version,) = crd["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def missing(theirs: Schema, ours: Schema | None, path: str) -> list[str]:
    """What one schema accepts and the other does not: fields, types, fields left out."""
    if ours is None:
        return [path]
    more = set(ours.get("required", [])) - set(theirs.get("required", []))
    found = [f"{path}.{name} is required" for name in sorted(more)]
    found += [] if theirs.get("type") == ours.get("type") else [f"{path} has another type"]
    for name, part in theirs.get("properties", {}).items():
        found += missing(part, ours.get("properties", {}).get(name), f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in theirs:
            found += missing(theirs[keyword], ours.get(keyword), f"{path}[]")
    return found
