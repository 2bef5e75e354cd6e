"""The corpus leaves nothing out, and the list of differences is kept in order."""

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest
from msgspec import Struct

from knfleet.api.knative.resources import EventingSpec, ServingSpec
from knfleet.api.meta import Object
from knfleet.api.schema import Free
from knfleet.release.errors import ReleaseError
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.release.source.sources import GoModuleSource, cache_folder
from knfleet.render import pipeline
from knfleet.render.drafts import draft, flatten
from knfleet.render.ownership import Owner
from knfleet.render.pipeline import RenderFacts, steps
from testbed.peers.samples import Sample, typed
from tests.peers.corpus import BY_NAME, CORPUS
from tests.peers.differences import DELIBERATE

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def test_there_are_enough_samples_and_each_has_a_name_of_its_own():
    assert len(CORPUS) == len(BY_NAME)
    assert len(CORPUS) >= 40
    assert 6 <= len([sample for sample in CORPUS if sample.quick]) <= 10


@pytest.mark.parametrize(("kind", "spec"), [("Serving", ServingSpec), ("Eventing", EventingSpec)])
def test_every_field_of_both_kinds_is_used(kind: str, spec: type[Struct]):
    """What both kinds have in common may be used by either."""
    common = set(fields_of(ServingSpec)) & set(fields_of(EventingSpec))
    used = {field for sample in CORPUS for field in fields_in(sample.manifest["spec"], "")}
    used_here = {
        field
        for sample in CORPUS
        if sample.manifest["kind"] == f"Knative{kind}"
        for field in fields_in(sample.manifest["spec"], "")
    }

    assert sorted(set(fields_of(spec)) - common - used_here) == []
    assert sorted(common - used) == []


def fields_of(struct: type[Struct], path: str = "") -> Iterator[str]:
    """All fields of a type and of the types in it, as they are written in manifests."""
    for field in msgspec.structs.fields(struct):
        name = f"{path}.{field.encode_name}"
        yield name
        for inner in structs_in(field.type):
            yield from fields_of(inner, name)


def structs_in(type_: Any) -> Iterator[type[Struct]]:
    """The types with fields that a field's type is made of."""
    if type_ == Free or get_origin(type_) is dict:
        return
    if isinstance(type_, type) and issubclass(type_, Struct):
        yield type_
    for part in get_args(type_):
        yield from structs_in(part)


def fields_in(value: Any, path: str) -> Iterator[str]:
    """All fields that a manifest uses."""
    if isinstance(value, dict):
        for name, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield f"{path}.{name}"
            yield from fields_in(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:  # pyright: ignore[reportUnknownVariableType]
            yield from fields_in(inner, path)


def transformers() -> set[str]:
    """All steps that rendering has: functions of a draft that the pipeline knows."""
    return {
        name
        for name, known in vars(pipeline).items()
        if inspect.isfunction(known)
        and known.__module__.startswith("knfleet.render.")
        and known.__module__ != pipeline.__name__
        and [*inspect.signature(known).parameters][:1] == ["draft"]
    } - PREDICATES


PREDICATES = {"is_tls"}


def test_every_step_of_rendering_changes_something(tmp_path: Path):
    """A step that no sample needs would not be compared with anything."""
    root = asyncio.run(GoModuleSource().fetch())
    changing: set[str] = set()
    for sample in CORPUS:
        if transformers() <= changing:
            break
        changing |= changing_steps(sample, root, tmp_path)

    assert sorted(transformers() - changing) == []


def changing_steps(sample: Sample, root: Path, folder: Path) -> set[str]:
    """The steps that change at least one object of a sample."""
    cr = typed(sample.placed(folder, root))
    releases = Releases(root, cache=ParsedCache(cache_folder() / "manifests"))
    try:
        bundle = asyncio.run(releases.load(cr))
    except ReleaseError:
        return set()
    facts = RenderFacts(
        version=bundle.version,
        owner=Owner("v1", "ConfigMap", "anchor", "uid"),
        minimum_kubernetes=sample.minimum_kubernetes,
        live={
            need: found
            for need in pipeline.needs(bundle.objects(), cr)
            for found in sample.beforehand
        },
    )
    drafts = [
        draft(manifest) for manifest in flatten(bundle.objects()) if not is_definition(manifest)
    ]
    changing: set[str] = set()
    try:
        for step in steps(cr, facts, drafts, ()):
            before = msgspec.json.encode([one.manifest for one in drafts])
            for one in drafts:
                step(one)
            if msgspec.json.encode([one.manifest for one in drafts]) != before:
                changing.add(getattr(step, "func", step).__name__)
    except pipeline.RenderError:
        return changing
    return changing


def is_definition(manifest: Object) -> bool:
    """Whether the object is a CRD, which are large and many."""
    return manifest["kind"] == "CustomResourceDefinition"


def test_every_difference_is_shown_by_a_sample_and_explained_on_the_page():
    page = PAGE.read_text()

    assert [each.shown_by for each in DELIBERATE if each.shown_by not in BY_NAME] == []
    assert [each.on_page for each in DELIBERATE if each.on_page not in page] == []
