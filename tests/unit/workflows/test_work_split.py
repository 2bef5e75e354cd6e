"""How objects are divided into works that are not too large."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.cluster.managedcluster import CLEANUP_PRIORITY
from knfleet.api.meta import Object
from knfleet.apply.refs import Ref
from knfleet.hub.work.work_validation import SIZE_LIMIT, manifest_size
from knfleet.workflows.work.work_files import WorkFileError
from knfleet.workflows.work.work_split import WORK_SET, WorkPart, part_name, part_number, split
from tests.support.hub_works import config_map, large

NAMESPACE: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
}


def places(parts: list[WorkPart]) -> dict[Ref, int]:
    """The part that each object is in."""
    return {Ref.of(each): part.number for part in parts for each in part.manifests}


def sizes(parts: list[WorkPart]) -> list[int]:
    """How large each part is."""
    return [sum(map(manifest_size, part.manifests)) for part in parts]


def test_what_fits_is_one_work_as_it_is_given():
    manifests = [config_map("b"), NAMESPACE, config_map("a")]

    (only,) = split("w", manifests)

    assert (only.name, only.manifests, only.annotations) == ("w", manifests, {})


def test_what_is_too_large_becomes_several_with_crds_and_namespaces_first():
    manifests = [*large(25, 50_000), NAMESPACE, CRD]

    parts = split("w", manifests)

    assert [part.name for part in parts] == ["w", "w-2", "w-3"]
    assert parts[0].manifests[:2] == [NAMESPACE, CRD]
    assert max(sizes(parts)) <= SIZE_LIMIT
    assert [part.annotations[WORK_SET] for part in parts] == ["w"] * 3
    assert [part.annotations[CLEANUP_PRIORITY] for part in parts] == ["100", "99", "98"]


def test_an_object_that_is_too_large_alone_is_refused_by_name():
    with pytest.raises(WorkFileError, match=r"ConfigMap default/cm-0 has 600\d+ bytes"):
        split("w", large(1, 600_000))


def test_objects_stay_where_they_are_when_others_come_and_go():
    manifests = large(25, 50_000)
    before = places(split("w", manifests))
    changed = [config_map("new", data="x" * 50_000), *manifests[1:24], CRD]

    after = places(split("w", changed, before))

    assert {ref: number for ref, number in after.items() if ref in before} == {
        ref: number for ref, number in before.items() if ref in after
    }


def test_there_is_always_a_first_part():
    manifests = large(12, 50_000)
    before = places(split("w", manifests))
    second = [each for each in manifests if before[Ref.of(each)] == 2]

    (only,) = split("w", second, before)

    assert (only.name, only.manifests) == ("w", second)


@pytest.mark.parametrize(
    ("part", "number"), [("w", 1), ("w-2", 2), ("w-10", 10), ("w-1", 0), ("w-02", 0), ("w-x", 0)]
)
def test_parts_are_known_by_their_names(part: str, number: int):
    assert part_number("w", part) == number
    if number:
        assert part_name("w", number) == part


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=40),
    st.lists(st.integers(1, 300), max_size=10),
)
def test_nothing_is_lost_and_nothing_is_too_large(first: list[int], more: list[int]):
    manifests = [config_map(f"a{index}", a="x" * size) for index, size in enumerate(first)]
    parts = split("w", manifests, limit=600)
    again = split("w", manifests, places(parts), limit=600)
    grown = [
        *manifests,
        *(config_map(f"b{index}", a="x" * size) for index, size in enumerate(more)),
    ]
    later = split("w", grown, places(parts), limit=600)

    assert places(parts) == places(again)
    assert set(places(later)) == set(map(Ref.of, grown))
    assert places(parts).items() <= places(later).items()
    assert max([*sizes(parts), *sizes(later)]) <= 600
