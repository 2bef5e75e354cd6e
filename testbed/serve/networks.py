"""Network namespaces: one for the network of a cluster, and one for each of its pods.

Pods are connected to a bridge in the cluster's namespace, whose address is that of the node. The
addresses of Services are local there, so that a process of that namespace can listen on them. No
namespace has a way out of the machine, and none has a name: a namespace ends with its processes.
"""

import ctypes
import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from knfleet.dev.control_plane import SERVICE_RANGE
from knfleet.dev.node.addresses import NODE_ADDRESS

CLONE_NEWNET = 0x40000000
PREFIX_BITS = 16
BRIDGE = "pods"
T = TypeVar("T")


class Namespace:
    """A new network namespace, with a thread inside."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, initializer=enter_new)
        self.descriptor = self.run(lambda: os.open("/proc/thread-self/ns/net", os.O_RDONLY))
        self.ip("link set lo up")

    @property
    def path(self) -> str:
        """How other processes find it, as long as this process lives."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def run(self, work: Callable[[], T]) -> T:
        """Do something inside."""
        return self.thread.submit(work).result()

    def ip(self, *lines: str) -> None:
        """Configure links, addresses and routes inside."""
        text = "".join(f"{line}\n" for line in lines)
        command = ["ip", "-batch", "-"]
        self.run(lambda: subprocess.run(command, input=text.encode(), check=True))

    def stream(self) -> socket.socket:
        """A socket for one connection."""
        return self.made(socket.SOCK_STREAM)

    def made(self, kind: socket.SocketKind) -> socket.socket:
        """A socket whose connections are inside, whoever uses it."""
        made = self.run(lambda: socket.socket(socket.AF_INET, kind))
        made.setblocking(False)
        return made

    def listener(self, address: str, port: int) -> socket.socket:
        """A socket that listens inside."""
        made = self.stream()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(128)
        return made

    def datagrams(self, address: str, port: int) -> socket.socket:
        """A socket that receives datagrams inside."""
        made = self.made(socket.SOCK_DGRAM)
        made.bind((address, port))
        return made

    def close(self) -> None:
        """Leave it; it ends with its last process."""
        self.thread.shutdown()
        os.close(self.descriptor)


class ClusterNetwork:
    """The network of one cluster."""

    def __init__(self) -> None:
        self.namespace = Namespace()
        self.namespace.ip(
            f"link add {BRIDGE} type bridge",
            f"addr add {NODE_ADDRESS}/{PREFIX_BITS} dev {BRIDGE}",
            f"link set {BRIDGE} up",
            f"route add local {SERVICE_RANGE} dev lo",
        )
        self.links = 0

    def connect_pod(self, address: str) -> Namespace:
        """The namespace of a new pod."""
        pod = Namespace()
        self.links += 1
        link = f"pod{self.links}"
        self.namespace.ip(
            f"link add {link} type veth peer name eth0 netns {pod.path}",
            f"link set {link} master {BRIDGE} up",
        )
        pod.ip(
            f"addr add {address}/{PREFIX_BITS} dev eth0",
            "link set eth0 up",
            f"route add default via {NODE_ADDRESS}",
        )
        return pod


def enter_new() -> None:
    """Have the calling thread, and no other, live in a new network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"no new network namespace: {os.strerror(number)}")


def missing_rights(tools: Sequence[str] = ("ip",)) -> str:
    """Why this machine cannot have such networks; empty when it can."""
    from shutil import which

    lacking = [tool for tool in tools if which(tool) is None]
    if lacking:
        return f"{', '.join(lacking)} is not installed; on Debian: apt-get install iproute2"
    if os.geteuid() != 0:
        return "network namespaces with addresses of their own need root"
    return ""
