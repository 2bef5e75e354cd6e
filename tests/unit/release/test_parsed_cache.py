"""The cache of parsed manifests: shared, damaged, full, or not writable."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from knfleet.release.errors import BadManifest, NotAvailable
from knfleet.release.manifest import Manifest, digest_of
from knfleet.release.manifest_reader import ManifestReader
from knfleet.release.parsed_cache import ParsedCache
from tests.unit.release.tree import config_map, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A manifest file."""
    return write(tmp_path / "files" / "a.yaml", config_map("a", key="value"))


def read(file: Path, cache: Path) -> Manifest:
    """Read a file as a new process would."""
    return ManifestReader(file.parent, ParsedCache(cache)).file(file)


def entries(cache: Path) -> list[Path]:
    return list(cache.iterdir())


def test_a_file_is_parsed_once(file: Path, tmp_path: Path):
    """The second reading takes the entry's word, whatever the YAML would say."""
    cache = ParsedCache(tmp_path / "cache")
    read(file, cache.folder)
    planted = msgspec.json.encode(
        {"count": 1, "stamps": [], "deployments": [], "objects": [config_map("planted")]}
    )
    cache.put(digest_of(file.read_bytes()), planted)

    assert read(file, cache.folder).objects() == [config_map("planted")]


def test_a_changed_file_is_another_file(file: Path, tmp_path: Path):
    reader = ManifestReader(file.parent, ParsedCache(tmp_path / "cache"))
    reader.file(file)
    write(file, config_map("b", key="longer value"))

    assert reader.file(file).objects()[0]["metadata"]["name"] == "b"


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "altered": lambda content: content.replace(b"value", b"evil!"),
    "zeros": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_entry_is_parsed_anew(file: Path, tmp_path: Path, kind: str):
    expected = read(file, tmp_path / "cache").objects()
    (entry,) = entries(tmp_path / "cache")
    entry.write_bytes(DAMAGES[kind](entry.read_bytes()))

    assert read(file, tmp_path / "cache").objects() == expected
    assert read(file, tmp_path / "cache").parsed == read(file, tmp_path / "other").parsed


def test_an_entry_of_another_shape_is_parsed_anew(file: Path, tmp_path: Path):
    cache = ParsedCache(tmp_path / "cache")
    cache.put(digest_of(file.read_bytes()), b'{"something": "else"}')

    assert read(file, cache.folder).objects()[0]["metadata"]["name"] == "a"


def test_a_cache_that_cannot_be_written_only_costs_time(file: Path, tmp_path: Path):
    blocked = tmp_path / "a file, not a folder"
    blocked.write_text("")

    assert read(file, blocked / "cache").count == 1


def test_the_oldest_entries_go_first(tmp_path: Path):
    cache = ParsedCache(tmp_path, most=2)
    for number, digest in enumerate(("a", "b", "c")):
        cache.put(digest, b"{}")
        os.utime(cache.path(digest), (number, number))
    cache.put("d", b"{}")

    assert [cache.get(digest) for digest in "abcd"] == [None, None, b"{}", b"{}"]


READ_ALL = """
import sys
from pathlib import Path
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.manifest_reader import ManifestReader

root, cache = Path(sys.argv[1]), ParsedCache(Path(sys.argv[2]))
sys.stdin.readline()
for _ in range(3):
    for entry in cache.folder.glob("*.json"):
        entry.unlink(missing_ok=True)
    for file in sorted(root.glob("*.yaml")):
        (manifest,) = ManifestReader(root, cache).file(file).objects()
        assert manifest["metadata"]["name"] == file.stem, manifest
print("well")
"""


def test_processes_share_a_cache_while_others_write_and_remove_it(tmp_path: Path):
    """Every process sees whole entries or none, and all leave the same behind."""
    root, cache = tmp_path / "files", tmp_path / "cache"
    for number in range(30):
        write(root / f"m{number}.yaml", config_map(f"m{number}", text="x" * 5000))
    command = [sys.executable, "-c", READ_ALL, str(root), str(cache)]
    processes = [
        subprocess.Popen(
            command,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]

    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60) for process in processes]

    assert [output for output, _ in answers] == ["well\n", "well\n"], answers
    assert not [path for path in entries(cache) if path.name.startswith(".")]
    for file in root.iterdir():
        assert read(file, cache).objects()[0]["metadata"]["name"] == file.stem


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path):
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(5 * 1024**3)

    with pytest.raises(BadManifest, match=r"large\.yaml: is larger than"):
        read(large, tmp_path / "cache")


def test_a_file_that_is_gone_is_told(tmp_path: Path):
    with pytest.raises(NotAvailable, match=r"gone\.yaml: cannot be read"):
        read(tmp_path / "gone.yaml", tmp_path / "cache")


def test_without_a_disk_memory_keeps_what_was_parsed(tmp_path: Path):
    """Where nothing can be written, a download is still parsed only once."""
    (tmp_path / "file").write_text("")
    reader = ManifestReader(tmp_path, ParsedCache(tmp_path / "file" / "cache"))
    content = write(tmp_path / "a.yaml", config_map("a")).read_bytes()

    first, second = reader.content(content, "one"), reader.content(content, "two")

    assert first.parsed is second.parsed
    assert second.origin == "two"
