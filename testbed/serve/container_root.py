"""Becomes a container's process: `python container_root.py SPEC` enters its pod and runs it.

The process gets the network namespace and the host name of its pod, and a mount namespace with a
root of its own: the machine's programs and libraries, the image's files and the pod's volumes. What
it writes is in memory, except in volumes. Only the standard library is used: this starts for each
container.
"""

import ctypes
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "sbin", "usr")
"""What a root has of the machine, as it is now."""
SHARED = ("dev", "proc", "sys")
CERTIFICATES = "etc/ssl"

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become the process that the file describes."""
    spec: dict[str, Any] = json.loads(Path(sys.argv[1]).read_bytes())
    descriptor = os.open(spec["network"], os.O_RDONLY)
    checked(libc.setns(descriptor, CLONE_NEWNET), spec["network"])
    os.close(descriptor)
    checked(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS), "mount namespace")
    socket.sethostname(spec["hostname"])
    mount("", "/", MS_REC | MS_PRIVATE)
    root = Path(spec["root"])
    build(root, spec)
    os.chroot(root)
    os.chdir(spec["folder"])
    arguments = spec["arguments"]
    os.execvpe(arguments[0], arguments, dict(os.environ))


def build(root: Path, spec: dict[str, Any]) -> None:
    """Make the root: a file system in memory with everything mounted into it."""
    checked(libc.mount(b"tmpfs", os.fsencode(root), b"tmpfs", 0, b"mode=755"), str(root))
    for name in SYSTEM:
        source = Path("/", name)
        if source.is_symlink():
            (root / name).symlink_to(source.readlink())
        elif source.is_dir():
            overlay(source, root / name, root / ".layers" / name)
    for name in SHARED:
        bind(Path("/", name), root / name, recursive=True)
    if Path("/", CERTIFICATES).is_dir():
        overlay(Path("/", CERTIFICATES), root / CERTIFICATES, root / ".layers" / "certificates")
    for name in ("tmp", spec["folder"].strip("/")):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for path, text in spec["files"].items():
        target = root / path.strip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for source, target in spec["mounts"]:
        bind(Path(source), root / target.strip("/"))


def overlay(source: Path, target: Path, layers: Path) -> None:
    """Show a folder of the machine at another place; what is written there stays there."""
    upper, work = layers / "upper", layers / "work"
    for path in (target, upper, work):
        path.mkdir(parents=True)
    options = f"lowerdir={source},upperdir={upper},workdir={work}"
    code = libc.mount(b"overlay", os.fsencode(target), b"overlay", 0, options.encode())
    checked(code, str(target))


def bind(source: Path, target: Path, *, recursive: bool = False) -> None:
    """Show a file or folder at another place."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(str(source), str(target), MS_BIND | (MS_REC if recursive else 0))


def mount(source: str, target: str, flags: int) -> None:
    """One call of the kernel, which fails loudly."""
    checked(libc.mount(source.encode(), target.encode(), b"none", flags, None), target)


def checked(code: int, what: str) -> None:
    """Raise an error for a failed call."""
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    main()
