"""The files of dev clusters: private, whole, and refused when they are of another format."""

import resource
import stat
import tempfile
from pathlib import Path

import pytest

from knfleet.dev.dev_folder import DevClusterState, DevFolder, DevState, locked, write_private
from knfleet.dev.errors import DevError


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A later command finds the same clusters on the same ports."""
    folder = DevFolder(tmp_path)
    state = DevState(clusters=(DevClusterState("hub", 0, 20001, "/hub-1"),))

    folder.write(state)

    assert folder.read() == state
    assert stat.S_IMODE(folder.state_file.stat().st_mode) == 0o600


def test_a_state_of_another_format_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Guessing at an unknown format could end the wrong processes."""
    folder = DevFolder(tmp_path)
    folder.state_file.write_text('{"schema": 99, "written_by": "9.9.0", "clusters": {}}')

    with pytest.raises(DevError, match=r"knfleet 9\.9\.0 in format 99.*dev down"):
        folder.read()


def test_a_damaged_state_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Half a file says so."""
    folder = DevFolder(tmp_path)
    folder.state_file.write_text('{"schema": 1, "clus')

    with pytest.raises(DevError, match=r"is damaged.*dev down"):
        folder.read()


def test_a_lock_is_refused_while_somebody_holds_it(tmp_path: Path) -> None:
    """Two commands never work on the same folder; the message names the other one."""

    def enter() -> bool:
        with locked(tmp_path / "lock", busy="at work"):
            return True

    with (
        locked(tmp_path / "lock", busy="busy"),
        pytest.raises(DevError, match=r"at work \(pid \d+\)"),
    ):
        enter()

    assert enter(), "it is free after its holder"


def test_removing_leaves_files_that_are_not_ours(tmp_path: Path) -> None:
    """A folder given by --dir may hold other things."""
    folder = DevFolder(tmp_path / "dev")
    folder.create()
    folder.write(DevState())
    mine = folder.root / "notes.txt"
    mine.write_text("keep me")

    folder.remove()

    assert list(folder.root.iterdir()) == [mine]
    assert not folder.sockets.exists()


def test_the_folder_of_sockets_is_private_and_has_no_name_that_others_can_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who could make it first would listen where API servers look for etcd."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one, same_root = DevFolder(tmp_path / "dev"), DevFolder(tmp_path / "dev")
    one.create()
    first = one.sockets
    one.create()

    assert first == one.sockets == same_root.sockets
    assert first.parent == tmp_path
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    one.remove()
    one.create()
    assert one.sockets != first
    one.remove()


@pytest.mark.parametrize("trap", ["gone", "open", "link"])
def test_a_folder_of_sockets_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    """Temporary folders are cleaned up at times, and then anybody can make one of that name."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, elsewhere = DevFolder(tmp_path / "dev"), tmp_path / "elsewhere"
    folder.create()
    first = folder.sockets
    first.rmdir()
    elsewhere.mkdir(mode=0o700)
    if trap == "open":
        first.mkdir()
        first.chmod(0o777)
    elif trap == "link":
        first.symlink_to(elsewhere)

    folder.create()

    assert folder.sockets != first
    assert folder.sockets.is_dir()
    folder.remove()
    assert elsewhere.is_dir()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file stands where a folder should be."""
    (tmp_path / "file").write_text("")

    with pytest.raises(DevError, match=r"cannot make .*file.*--dir"):
        DevFolder(tmp_path / "file" / "dev").create()


def test_a_write_that_does_not_fit_leaves_the_old_file(tmp_path: Path) -> None:
    """What was there stays whole when the new content finds no room."""
    path = tmp_path / "state.json"
    write_private(path, b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(DevError, match=r"cannot write .*state\.json.*--dir"):
            write_private(path, b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
