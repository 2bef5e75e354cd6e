"""What a release is refused for, and archives that are the same each time."""

import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from knfleet.kube.yaml import load_all
from tools.release import __main__ as program
from tools.release.archives import PackedFile, write_archive
from tools.release.changelog import ChangelogError, section
from tools.release.source_tree import (
    ReleaseError,
    ReleaseRequest,
    SourceTree,
    remote,
    source_tree,
    tag_of_head,
)

WORKFLOW = Path(__file__).parents[2] / ".github" / "workflows" / "release.yml"
PAGE = (
    "# Changelog\n\n## Unreleased\n\n- b\n\n## 0.2.0 (2026-11-19)\n\n- a\n- c\n\n## 0.1.0\n\n- z\n"
)


def repository(folder: Path, *commands: tuple[str, ...]) -> Path:
    """A repository with one commit."""
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.com")
    commit = (*identity, "commit", "--quiet", "--allow-empty", "-m", "first")
    for command in (("init", "--quiet"), commit, *commands):
        subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)
    return folder


def test_the_section_of_a_version_ends_at_the_next_heading() -> None:
    """Whatever follows the version in its heading."""
    assert section(PAGE, "0.2.0") == "- a\n- c\n"
    assert section(PAGE, "0.1.0") == "- z\n"


@pytest.mark.parametrize("version", ["0.3.0", "0.2", "0.2.0rc1"])
def test_a_version_without_a_section_is_refused(version: str) -> None:
    """With what to do before the tag."""
    with pytest.raises(ChangelogError, match=f"give its section the heading `## {version}`"):
        section(PAGE, version)


def test_the_tag_of_head_is_the_version(tmp_path: Path) -> None:
    """Other tags do not count; no tag, and two of them, are refused."""
    root = repository(tmp_path, ("tag", "nightly"))
    with pytest.raises(ReleaseError, match="HEAD has 0 tags of releases"):
        tag_of_head(root)
    subprocess.run(["git", "-C", str(root), "tag", "v0.2.0rc1"], check=True)
    assert tag_of_head(root) == "v0.2.0rc1"
    subprocess.run(["git", "-C", str(root), "tag", "v0.2.0"], check=True)
    with pytest.raises(ReleaseError, match="HEAD has 2 tags of releases"):
        tag_of_head(root)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("git@forge.example.com:org/knfleet.git", "https://forge.example.com/org/knfleet"),
        ("ssh://git@forge.example.com/org/knfleet", "https://forge.example.com/org/knfleet"),
        ("https://forge.example.com/org/knfleet.git", "https://forge.example.com/org/knfleet"),
    ],
)
def test_the_address_is_that_of_the_remote(tmp_path: Path, url: str, address: str) -> None:
    """As browsers know it."""
    assert remote(repository(tmp_path, ("remote", "add", "origin", url))) == address


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ReleaseRequest(Path(), "0.2.0", "https://a.example.com/b"), "a tag of a release is"),
        (ReleaseRequest(Path(), "v0.2.0", "http://a.example.com/b"), "https://HOST/PATH"),
        (ReleaseRequest(Path(), "v0.2.0", "https://user@a.example.com/b"), "https://HOST/PATH"),
        (ReleaseRequest(Path(), "v0.2.0", 'https://a.example.com/b"'), "https://HOST/PATH"),
        (ReleaseRequest(Path(), "v0.2.0", "https://a.example.com/b", "A B"), "without tag"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(request_: ReleaseRequest, words: str) -> None:
    """Before anything is made."""
    with pytest.raises(ReleaseError, match=words):
        source_tree(request_, Path("unused"))


def test_what_git_says_of_a_damaged_repository_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it packs the files, where it writes no text otherwise."""
    (tmp_path / "page.md").write_text("text\n")
    root = repository(tmp_path, ("add", "page.md"))
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.com")
    for command in ((*identity, "commit", "--quiet", "-m", "second"), ("tag", "v0.2.0")):
        subprocess.run(["git", "-C", str(root), *command], check=True)
    found = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "HEAD:page.md"],
        check=True,
        capture_output=True,
        text=True,
    )
    blob = found.stdout.strip()
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    monkeypatch.setattr(program, "ROOT", root)

    flags = ["--tag", "v0.2.0", "--repository", "https://a.example.com/b"]
    said = CliRunner().invoke(program.main, [*flags, "--to", str(tmp_path / "dist")])

    assert said.exit_code == 1
    assert blob in said.stderr
    assert f"Error: git -C {root} archive … failed" in said.stderr


def test_versions_before_a_release_are_written_as_helm_wants_them() -> None:
    """Python and Helm write them in different ways."""
    versions = {"0.2.0": "0.2.0", "0.2.0rc1": "0.2.0-rc.1", "10.0.1b12": "10.0.1-b.12"}

    made = {each: SourceTree(Path(), each, 0, "", "").chart_version for each in versions}

    assert made == versions


def test_an_archive_depends_on_its_files_alone(tmp_path: Path) -> None:
    """Not on the order in which they are named."""
    files = {"b": PackedFile(b"2"), "a": PackedFile(b"1", executable=True)}

    first = write_archive(tmp_path / "first", files, 7).read_bytes()
    second = write_archive(tmp_path / "second", dict(reversed(files.items())), 7).read_bytes()

    assert first == second


@pytest.mark.parametrize(
    ("tag", "is_early"),
    [("v0.2.0", False), ("v0.2.0a1", True), ("v0.2.0b12", True), ("v1.0.0rc2", True)],
)
def test_the_workflow_drafts_a_release_that_it_publishes_after_the_image(
    tmp_path: Path, tag: str, is_early: bool
) -> None:
    """One before a release is marked as such."""
    (workflow,) = load_all(WORKFLOW.read_text())
    jobs = workflow["jobs"]
    (draft,) = (each["run"] for each in jobs["files"]["steps"] if each.get("name") == "draft")
    gh = tmp_path / "gh"
    gh.write_text('#!/bin/sh\necho "$@"\n')
    gh.chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REF_NAME": tag}

    said = subprocess.run(
        ["bash", "-e", "-c", draft], env=variables, check=True, capture_output=True, text=True
    )

    assert said.stdout.startswith(f"release create {tag} --draft --verify-tag ")
    assert ("--prerelease" in said.stdout.split()) == is_early
    assert jobs["publish"]["needs"] == "image"
    assert "--draft=false" in jobs["publish"]["steps"][0]["run"]
