"""Which objects files hold, and what is refused with which words."""

from pathlib import Path

import pytest

from knfleet.kube.errors import KubeError
from knfleet.workflows.work.work_files import WorkFileError, notes, read_manifests

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n"
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with three files, one of them in another folder."""
    (tmp_path / "b.yaml").write_text(f"{CONFIG_MAP}---\n---\n{NAMESPACE}")
    (tmp_path / "a.json").write_text(
        '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Secret",'
        ' "metadata": {"name": "c", "namespace": "default"}}]}'
    )
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "d.yml").write_text(CONFIG_MAP.replace("name: a", "name: d"))
    return tmp_path


def names(*sources: str, recursive: bool = False) -> list[str]:
    """Kind and name of all objects."""
    return [str(each.ref) for each in read_manifests(sources, recursive=recursive)]


def test_files_folders_and_lists_are_read_in_their_order(folder: Path):
    flat = ["Secret default/c", "ConfigMap default/a", "Namespace b"]

    assert names(str(folder)) == flat
    assert names(str(folder), recursive=True) == [*flat, "ConfigMap default/d"]
    assert names(str(folder / "b.yaml"), str(folder / "a.json")) == [*flat[1:], flat[0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there are no objects in it"),
        ("- 1\n", "an object is expected"),
        ("kind: ConfigMap\nmetadata: {name: a}\n", "apiVersion is missing"),
        ("apiVersion: v1\nmetadata: {name: a}\n", "kind is missing"),
        ("apiVersion: v1\nkind: 5\nmetadata: {name: a}\n", "kind is missing"),
        ("apiVersion: v1\nkind: ConfigMap\n", "ConfigMap: metadata.name is missing"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: []\n", "metadata.name is missing"),
        (
            f"{CONFIG_MAP}---\napiVersion: v1\nkind: Pod\nmetadata: {{generateName: a}}\n",
            "document 2: Pod: generateName must not be set",
        ),
        (f"{CONFIG_MAP}---\n{CONFIG_MAP}", r"ConfigMap default/a is given twice: .* document 2"),
        ("kind: List\nitems: [5]\n", r"items\[0\]: an object is expected"),
    ],
)
def test_what_a_work_cannot_have_is_refused_with_its_place(tmp_path: Path, text: str, words: str):
    path = tmp_path / "x.yaml"
    path.write_text(text)

    with pytest.raises(WorkFileError, match=words):
        read_manifests([str(path)])


def test_what_is_not_yaml_is_refused_with_its_line(tmp_path: Path):
    path = tmp_path / "x.yaml"
    path.write_text("a: [\n")

    with pytest.raises(KubeError, match=r"x\.yaml"):
        read_manifests([str(path)])


def test_files_that_are_not_there_are_refused(tmp_path: Path):
    with pytest.raises(WorkFileError, match="there is no such file"):
        read_manifests([str(tmp_path / "missing.yaml")])
    with pytest.raises(WorkFileError, match="--recursive"):
        read_manifests([str(tmp_path)])


def test_what_a_person_may_not_have_meant_is_told(tmp_path: Path):
    path = tmp_path / "x.yaml"
    work = "apiVersion: work.open-cluster-management.io/v1\nkind: ManifestWork\nmetadata: {name: w}"
    path.write_text(f"{CONFIG_MAP.replace(', namespace: default', '')}---\n{NAMESPACE}---\n{work}")

    first, second = notes(read_manifests([str(path)]))

    assert "ConfigMap a has no namespace" in first
    assert "is itself a ManifestWork" in second
