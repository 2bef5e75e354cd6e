"""Where one set of dev clusters keeps its files, and who may work on them now.

state.json     which clusters there are, and on which ports
lock           held by the one `dev up` or `dev down` that is at work
kubeconfig     all clusters, for people
run/           a file for each process that was started: pid and start time
logs/          what the processes printed
etcd/          the data of all clusters
clusters/NAME/ certificates, configuration files and pods of one cluster
sockets        a link to the folder of Unix sockets
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import msgspec
from msgspec import Struct

from knfleet import __version__
from knfleet.dev.errors import DevError

PRIVATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
SCHEMA = 1
"""The format of the state file; a file of another format is refused, never guessed at."""


class DevClusterState(Struct, frozen=True):
    """One cluster as `dev up` decided it."""

    name: str
    index: int
    """Counts from 0, the hub; pods of cluster N that are processes listen on 127.(64+N).x.y."""
    port: int
    prefix: str
    """Of its keys in etcd; never used twice, so a new cluster never meets an old one's data."""
    outbound: tuple[int, ...] | None = None
    """Ports of this machine that can be reached from inside, if the cluster is isolated: it has a
    network of its own, in which nothing can be reached from outside."""


class DevState(Struct, frozen=True):
    """What `dev up` decided, and what a later `dev up` must find again."""

    schema: int = SCHEMA
    written_by: str = __version__
    clusters: tuple[DevClusterState, ...] = ()

    def cluster(self, name: str) -> DevClusterState | None:
        return next((cluster for cluster in self.clusters if cluster.name == name), None)


class StateHeader(Struct, frozen=True):
    """The part of the state file that every format has."""

    schema: int
    written_by: str = "an unknown version"


class DevFolder(Struct, frozen=True):
    """The files of one set of dev clusters."""

    root: Path

    @property
    def state_file(self) -> Path:
        """Which clusters there are."""
        return self.root / "state.json"

    @property
    def kubeconfig(self) -> Path:
        """The merged kubeconfig of all clusters."""
        return self.root / "kubeconfig"

    @property
    def run(self) -> Path:
        """The files with pids."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """The files with what processes printed."""
        return self.root / "logs"

    @property
    def etcd(self) -> Path:
        """etcd's data."""
        return self.root / "etcd"

    @property
    def sockets(self) -> Path:
        """Unix sockets: elsewhere, since their paths may have 107 bytes at most."""
        link = self.root / "sockets"
        return link.readlink() if link.is_symlink() else link

    def cluster(self, name: str) -> Path:
        return self.root / "clusters" / name

    def pki(self, name: str) -> Path:
        """The certificates of one cluster."""
        return self.cluster(name) / "pki"

    def log(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def exists(self) -> bool:
        """Whether there is anything to take down."""
        return self.state_file.exists() or self.run.exists()

    def create(self) -> None:
        """Make the folders; only their owner can look inside."""
        try:
            for path in (self.root, self.run, self.logs):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.create_sockets()
        except OSError as error:
            raise DevError(
                f"cannot make {error.filename}: {error.strerror}; choose another folder with --dir"
            ) from error

    def create_sockets(self) -> None:
        """Make the folder of sockets, whose name cannot be guessed and occupied."""
        if is_private(self.sockets):
            return
        link = self.root / "sockets"
        # A folder that the system removed from its temporary files, or another's in its place.
        link.unlink(missing_ok=True)
        link.symlink_to(tempfile.mkdtemp(prefix="knfleet-"))

    def remove(self) -> None:
        """Remove every file that was made, and nothing that was not."""
        sockets = [self.sockets] if is_private(self.sockets) else []
        for path in (self.run, self.logs, self.etcd, self.root / "clusters", *sockets):
            shutil.rmtree(path, ignore_errors=True)
        for path in (self.state_file, self.kubeconfig, self.root / "lock", self.root / "sockets"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.root.rmdir()

    def read(self) -> DevState:
        """The state, empty when there is none yet."""
        try:
            raw = self.state_file.read_bytes()
        except FileNotFoundError:
            return DevState()
        except OSError as error:
            raise DevError(f"cannot read {self.state_file}: {error.strerror}") from error
        again = f"`knfleet dev down --dir {self.root}` removes it"
        try:
            header = msgspec.json.decode(raw, type=StateHeader)
            if header.schema == SCHEMA:
                return msgspec.json.decode(raw, type=DevState)
        except msgspec.DecodeError as error:
            raise DevError(f"{self.state_file} is damaged ({error}); {again}") from error
        raise DevError(
            f"{self.state_file} was written by knfleet {header.written_by} in format"
            f" {header.schema}, this is {__version__} with format {SCHEMA};"
            f" use that version, or start over: {again}"
        )

    def write(self, state: DevState) -> None:
        write_private(self.state_file, msgspec.json.format(msgspec.json.encode(state)))


def is_private(path: Path) -> bool:
    """Whether a path is a folder that only we can write to, and no link to one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    is_ours = found.st_uid == os.getuid() and not found.st_mode & 0o077
    return stat.S_ISDIR(found.st_mode) and is_ours


def write_private(path: Path, content: bytes | str) -> None:
    """Write a file that only its owner can read; it is there in full or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, PRIVATE_FLAGS, 0o600), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise DevError(
            f"cannot write {path}: {error.strerror}; free some space or choose another --dir"
        ) from error


@contextlib.contextmanager
def locked(path: Path, *, wait_seconds: float = 0, busy: str) -> Generator[None]:
    """Hold a lock file; raises with `busy` and the holder's pid when another process holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise DevError(f"cannot open {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = file.read(20).decode(errors="replace").strip() or "unknown"
                    raise DevError(f"{busy} (pid {holder})") from None
                time.sleep(0.1)
        file.truncate(0)
        file.seek(0)
        file.write(str(os.getpid()).encode())
        yield
