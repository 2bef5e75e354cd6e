"""Locked bundles: what was changed, lost or added is noticed."""

from pathlib import Path

import pytest

from knfleet.release.bundle import Bundle
from knfleet.release.errors import BadManifest, NotAvailable, ReleaseError, Tampered
from knfleet.release.lock import LOCK, differences, make_lock, read_lock, write_lock
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.source.pull import contents, problems, pull
from knfleet.release.source.sources import FolderSource
from tests.unit.release.tree import config_map, releases, serving, tree, write

CORE = "knative-serving/1.23.0/2-core.yaml"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A locked bundle."""
    root = tree(tmp_path / "ko")
    write_lock(make_lock(root, "here"), root / LOCK)
    return root


def test_a_lock_is_read_as_it_was_written(root: Path):
    lock = read_lock(root / LOCK)

    assert lock == make_lock(root, "here")
    assert differences(lock, root) == []
    assert len(lock.files) == 33


def test_differences_are_named(root: Path):
    lock = read_lock(root / LOCK)
    (root / CORE).write_text("# changed\n")
    (root / "ingress/1.23/istio/net.yaml").unlink()
    write(root / "ingress/1.23/istio/new.yaml", config_map("new"))

    assert differences(lock, root) == [
        "ingress/1.23/istio/net.yaml is missing",
        "ingress/1.23/istio/new.yaml is not in the lock",
        f"{CORE} was changed",
    ]


async def load(root: Path, tmp_path: Path) -> Bundle:
    """Load the newest Serving."""
    return await releases(root, tmp_path / "cache").load(serving())


async def test_a_locked_bundle_loads_as_one_without_a_lock(root: Path, tmp_path: Path):
    locked = await load(root, tmp_path)
    (root / LOCK).unlink()
    plain = await load(root, tmp_path / "plain")

    assert locked.version == "1.23.0"
    assert locked.main == plain.main != ()


async def test_a_changed_file_is_never_loaded(root: Path, tmp_path: Path):
    write(root / CORE, config_map("evil"))

    with pytest.raises(Tampered, match=f"{CORE} is not the file that was locked"):
        await load(root, tmp_path)


async def test_a_file_that_came_later_is_never_loaded(root: Path, tmp_path: Path):
    write(root / "knative-serving/1.23.0/3-more.yaml", config_map("evil"))

    with pytest.raises(Tampered, match=r"3-more\.yaml is not in the lock"):
        await load(root, tmp_path)


async def test_a_file_that_was_lost_is_missed(root: Path, tmp_path: Path):
    (root / CORE).unlink()

    with pytest.raises(ReleaseError, match=f"not complete .{CORE} missing"):
        await load(root, tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"files": 7}', '{"files": {}, "format": 99}'], ids=str
)
def test_a_lock_that_is_none_is_told(tmp_path: Path, text: str):
    (tmp_path / LOCK).write_text(text)

    with pytest.raises(BadManifest, match=r"bundle\.lock"):
        read_lock(tmp_path / LOCK)


async def test_pulling_copies_and_locks(root: Path, tmp_path: Path):
    target, lock_file = tmp_path / "target", tmp_path / "mine.lock"

    lock = await pull(FolderSource(root), target, lock_file)

    assert differences(lock, target) == []
    assert read_lock(target / LOCK) == read_lock(lock_file) == lock
    assert problems(target, ParsedCache(tmp_path / "cache")) == []


async def test_pulling_something_else_than_the_lock_file_says_changes_nothing(
    root: Path, tmp_path: Path
):
    target, lock_file = tmp_path / "target", tmp_path / "mine.lock"
    before = await pull(FolderSource(root), target, lock_file)
    write(root / CORE, config_map("evil"))

    with pytest.raises(Tampered, match=f"{CORE} was changed; if the change is wanted"):
        await pull(FolderSource(root), target, lock_file)

    assert differences(before, target) == []


async def test_pulling_replaces_an_older_bundle_as_a_whole(root: Path, tmp_path: Path):
    target = tmp_path / "target"
    write(target / "knative-serving/1.0.0/1-old.yaml", config_map("old"))

    await pull(FolderSource(root), target)

    assert not (target / "knative-serving/1.0.0").exists()


async def test_pulling_to_where_nothing_can_be_written_is_told(root: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(NotAvailable, match="cannot be written"):
        await pull(FolderSource(root), tmp_path / "file" / "target")


async def test_pulling_never_replaces_a_folder_with_other_things(root: Path, tmp_path: Path):
    target = tmp_path / "home"
    write(target / "letters" / "a.yaml", config_map("a"))

    with pytest.raises(NotAvailable, match=r"holds other things than release files \(letters\)"):
        await pull(FolderSource(root), target)

    assert (target / "letters" / "a.yaml").exists()


def test_every_problem_of_a_bundle_is_found(root: Path, tmp_path: Path):
    (root / "knative-serving/1.22.0/1-crds.yaml").unlink()
    (root / CORE).write_text("a: [\n")

    found = "\n".join(problems(root, ParsedCache(tmp_path / "cache")))

    assert "knative-serving/1.22.0/1-crds.yaml is missing" in found
    assert f"{CORE} was changed" in found
    assert f"{CORE}, line" in found
    assert "1.22.0 is not complete (1-*.yaml missing)" in found


def test_contents_are_listed_newest_first(root: Path):
    listed = [(one.section, one.version, one.files) for one in contents(root)]

    assert listed[:3] == [
        ("knative-serving", "1.23.0", 2),
        ("knative-serving", "1.22.1", 2),
        ("knative-serving", "1.22.0", 2),
    ]
    ingress = next(one for one in contents(root) if one.section == "ingress")
    assert ingress.parts == ["contour", "gateway-api", "istio", "kourier"]
