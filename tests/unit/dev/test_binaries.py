"""Where the servers come from: the order, what is passed over, and what is said when none works."""

import os
from pathlib import Path

import pytest

from knfleet.dev.binaries import locate
from knfleet.dev.errors import DevError
from knfleet.dev.progress_reporter import SilentProgress

VERSIONS = {
    "etcd": "etcd Version: 3.6.5",
    "kube-apiserver": "Kubernetes v1.35.8",
    "kube-controller-manager": "Kubernetes v1.35.8",
    "kubectl": "Client Version: v1.35.8",
}


def put(folder: Path, **answers: str) -> Path:
    """A folder of programs that only tell a version."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, answer in {
        **VERSIONS,
        **{k.replace("_", "-"): v for k, v in answers.items()},
    }.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{answer}'\n")
        program.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a shell, and nothing of ours."""
    for name in ("KUBEBUILDER_ASSETS", "KNFLEET_GROUND"):
        monkeypatch.delenv(name, raising=False)
    bare = tmp_path / "bare"
    bare.mkdir()
    for tool in ("sh", "echo"):
        (bare / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(bare))
    monkeypatch.setenv("KNFLEET_CACHE", str(tmp_path / "cache"))


async def test_assets_come_before_path_and_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who names a folder means it."""
    assets = put(tmp_path / "assets")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    monkeypatch.setenv("PATH", f"{put(tmp_path / 'path')}{os.pathsep}{os.environ['PATH']}")
    put(locate.cache_folder() / "built")

    tools = await locate.ensure(SilentProgress())

    assert {tool.path.parent for tool in tools.values()} == {assets}
    assert {tool.origin for tool in tools.values()} == {"KUBEBUILDER_ASSETS"}
    assert tools["kube-apiserver"].version == "1.35.8"


async def test_path_comes_before_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user installed is used."""
    path = put(tmp_path / "path")
    monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
    put(locate.cache_folder() / "built")

    tools = await locate.ensure(SilentProgress())

    assert {tool.path.parent for tool in tools.values()} == {path}


async def test_an_old_kubectl_on_path_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tools from the same folder are still used."""
    path = put(tmp_path / "path", kubectl="Client Version: v1.20.0")
    monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
    cache = put(locate.cache_folder() / "built")

    tools = await locate.ensure(SilentProgress())

    assert tools["kubectl"].path == cache / "kubectl"
    assert tools["etcd"].path == path / "etcd"


async def test_a_broken_named_binary_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To use another one silently would hide the mistake."""
    assets = put(tmp_path / "assets")
    (assets / "kube-apiserver").write_bytes(b"\x7fELF")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    with pytest.raises(DevError, match=r"assets/kube-apiserver: does not run.*unset it"):
        await locate.ensure(SilentProgress())


async def test_an_incomplete_named_folder_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The missing file is named."""
    assets = put(tmp_path / "assets")
    (assets / "etcd").unlink()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    with pytest.raises(DevError, match=r"assets/etcd: No such file"):
        await locate.ensure(SilentProgress())


async def test_a_version_is_asked_once_and_again_when_the_file_changes(tmp_path: Path) -> None:
    """Starting a server only to learn its version costs time on every command."""
    built = put(locate.cache_folder() / "built")
    asked = tmp_path / "asked"
    script = f"#!/bin/sh\necho x >> {asked}\necho 'Kubernetes v1.35.8'\n"
    (built / "kube-apiserver").write_text(script)

    await locate.ensure(SilentProgress())
    await locate.ensure(SilentProgress())
    assert asked.read_text().count("x") == 1

    (built / "kube-apiserver").write_text(script + "\n")
    await locate.ensure(SilentProgress())
    assert asked.read_text().count("x") == 2


@pytest.mark.parametrize("way", ["auto", "path", "build", "download"])
async def test_when_nothing_works_all_ways_are_named(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user without Go and without binaries learns what to do."""
    monkeypatch.setenv("KNFLEET_GROUND", way)
    monkeypatch.setenv("KNFLEET_GROUND_MIRROR", "http://127.0.0.1:1")

    with pytest.raises(DevError) as caught:
        await locate.ensure(SilentProgress())

    message = str(caught.value)
    assert "KUBEBUILDER_ASSETS" in message
    assert "install Go" in message
    assert "KNFLEET_GROUND=download" in message


async def test_an_unknown_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choices are listed."""
    monkeypatch.setenv("KNFLEET_GROUND", "magic")

    with pytest.raises(DevError, match="auto, path, build, download"):
        await locate.ensure(SilentProgress())
