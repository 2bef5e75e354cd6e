"""The files of volumes, and how they are switched."""

import stat
from pathlib import Path

import pytest

from knfleet.api.meta import Object
from knfleet.dev.node.containers.container_environment import ReferenceMissing
from knfleet.dev.node.pods.pod_folders import PodFolder, mount
from knfleet.dev.node.pods.volumes import (
    Files,
    TokenProjection,
    UnsupportedVolume,
    VolumeFile,
    VolumeSources,
    contents,
    publish,
    token_projections,
)
from tests.unit.dev.node.manifests import pod
from tests.unit.dev.node.test_environment import FACTS, Store

STORE = Store({"app": {"a": b"1", "b": b"2"}}, {"login": {"user": b"me"}})


def files(volume: Object, token: bytes | None = b"t") -> Files | None:
    """The files of a volume."""
    sources = VolumeSources(pod(), FACTS, STORE, lambda _: token)
    return contents({"name": "v", **volume}, sources)


def test_config_maps_and_secrets_become_files() -> None:
    """Nobody but the owner reads a Secret, whatever its mode."""
    config = {"name": "app", "items": [{"key": "a", "path": "d/x", "mode": 0o400}]}

    assert files({"configMap": {"name": "app"}}) == {"a": VolumeFile(b"1"), "b": VolumeFile(b"2")}
    assert files({"configMap": config}) == {"d/x": VolumeFile(b"1", 0o400)}
    assert files({"secret": {"secretName": "login"}}) == {"user": VolumeFile(b"me", 0o600)}


def test_a_projected_volume_has_the_files_of_all_its_sources() -> None:
    """As the one that every pod gets for its ServiceAccount."""
    parts: list[Object] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "app", "items": [{"key": "a", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
            }
        },
    ]
    volume: Object = {"projected": {"sources": parts, "defaultMode": 0o644}}

    assert files(volume) == {
        "token": VolumeFile(b"t", 0o600),
        "ca.crt": VolumeFile(b"1"),
        "namespace": VolumeFile(b"shop"),
    }
    assert token_projections(pod(volumes=[{"name": "v", **volume}])) == {TokenProjection("", 3607)}


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        (
            {"configMap": {"name": "app", "items": [{"key": "c", "path": "c"}]}},
            'configmap "app" has no key c',
        ),
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        ({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}, "token"),
    ],
)
def test_what_is_missing_is_named(volume: Object, message: str) -> None:
    """The pod waits for it."""
    with pytest.raises(ReferenceMissing, match=message):
        files(volume, token=None)


def test_what_is_optional_may_be_missing() -> None:
    """The volume is empty then."""
    assert files({"configMap": {"name": "none", "optional": True}}) == {}
    assert files({"emptyDir": {}}) is None


@pytest.mark.parametrize(
    "volume",
    [
        {"hostPath": {"path": "/etc"}},
        {"persistentVolumeClaim": {"claimName": "x"}},
        {"configMap": {"name": "app", "items": [{"key": "a", "path": "../../x"}]}},
    ],
)
def test_volumes_that_cannot_be_had_or_leave_their_folder_are_refused(volume: Object) -> None:
    """Nothing outside the pod's folder is read or written."""
    with pytest.raises(UnsupportedVolume):
        files(volume)


def test_publishing_switches_all_files_at_once(tmp_path: Path) -> None:
    """A reader who holds the folder open sees one state or the other."""
    assert publish(tmp_path, {"a": VolumeFile(b"1"), "d/x": VolumeFile(b"s", 0o600)})
    before = (tmp_path / "..data").resolve()
    assert not publish(tmp_path, {"a": VolumeFile(b"1"), "d/x": VolumeFile(b"s", 0o600)})
    assert publish(tmp_path, {"a": VolumeFile(b"2")})

    assert (tmp_path / "a").read_bytes() == b"2"
    assert not (tmp_path / "d").exists()
    assert not before.exists()
    assert {each.name for each in tmp_path.iterdir() if not each.name.startswith("..")} == {"a"}


def test_files_have_their_modes(tmp_path: Path) -> None:
    """Also when the mask of the process would widen them."""
    publish(tmp_path, {"s": VolumeFile(b"s", 0o600), "x": VolumeFile(b"x", 0o755)})

    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("s", "x")}
    assert modes == {"s": 0o600, "x": 0o755}


def test_mounts_are_found_below_the_root(tmp_path: Path) -> None:
    """Outer ones, inner ones and single files."""
    folder = PodFolder(tmp_path, pod())
    folder.create()
    publish(folder.volume("app"), {"a": VolumeFile(b"1")})
    publish(folder.volume("login"), {"user": VolumeFile(b"me")})
    folder.volume("work").mkdir(parents=True)
    mounts = [
        {"name": "login", "mountPath": "/desk/login"},
        {"name": "work", "mountPath": "/desk/"},
        {"name": "app", "mountPath": "/etc/one", "subPath": "a"},
        {"name": "work", "mountPath": "/data", "subPathExpr": "$(NAME)"},
    ]

    for _ in range(2):
        mount(folder, {"name": "main", "volumeMounts": mounts}, {"NAME": "web-1"})

    root = folder.root("main")
    assert (root / "desk/login/user").read_bytes() == b"me"
    assert (root / "etc/one").read_bytes() == b"1"
    assert (root / "data").resolve() == (folder.volume("work") / "web-1").resolve()
    missing = {"name": "app", "mountPath": "/x", "subPath": "b"}
    with pytest.raises(ReferenceMissing, match="has no b"):
        mount(folder, {"name": "main", "volumeMounts": [missing]}, {})
