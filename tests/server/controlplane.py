"""A real etcd and a real API server, started for the tests of one session."""

import os
import random
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from knfleet.api.meta import ClusterName
from knfleet.kube.credentials import Credential, StaticCredential
from knfleet.kube.endpoint import Connection, Endpoint
from tests.fakes.certificates import Authority, Pair

START_SECONDS = 60


def free_port() -> int:
    """A port that nobody listens on, below those that the kernel hands out."""
    while True:
        port = random.randint(20000, 32000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def process(log: Path, *command: str) -> Generator[None, None, None]:
    """A program that runs as long as the block."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, cwd=log.parent)
        try:
            yield
        finally:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(20)


def write_pair(folder: Path, name: str, pair: Pair) -> tuple[str, str]:
    """Paths of a certificate and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    key.chmod(0o600)
    return str(certificate), str(key)


@contextmanager
def control_plane(folder: Path) -> Generator[Connection, None, None]:
    """A clean cluster, and a connection to it with all rights."""
    binaries = Path(os.environ["KUBEBUILDER_ASSETS"])
    authority = Authority("cluster")
    ca, _ = write_pair(folder, "ca", authority.pair)
    certificate, key = write_pair(folder, "server", authority.server("kubernetes", "localhost"))
    etcd, peer, port = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}", 0
    port = free_port()
    admin = authority.client("admin", "system:masters")
    connection = Connection(
        ClusterName("hub"),
        Endpoint(f"https://127.0.0.1:{port}", ca=authority.pem),
        StaticCredential(Credential(client_certificate=admin.certificate, client_key=admin.key)),
    )
    with ExitStack() as running:
        running.enter_context(
            process(
                folder / "etcd.log",
                str(binaries / "etcd"),
                f"--data-dir={folder / 'etcd'}",
                "--unsafe-no-fsync",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
            )
        )
        running.enter_context(
            process(
                folder / "apiserver.log",
                str(binaries / "kube-apiserver"),
                f"--etcd-servers={etcd}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--endpoint-reconciler-type=none",
                f"--secure-port={port}",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
                f"--client-ca-file={ca}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--disable-admission-plugins=ServiceAccount",
                f"--cert-dir={folder}",
            )
        )
        wait_ready(connection, admin, folder)
        yield connection


def wait_ready(connection: Connection, admin: Pair, folder: Path) -> None:
    """Wait until the server answers on /readyz."""
    certificate, key = write_pair(folder, "admin", admin)
    context = ssl.create_default_context(cadata=(connection.endpoint.ca or b"").decode())
    context.load_cert_chain(certificate, key)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with suppress(urllib.error.URLError, OSError):
            url = f"{connection.endpoint.server}/readyz"
            with urllib.request.urlopen(url, timeout=5, context=context):
                return
        time.sleep(0.1)
    tail = (folder / "apiserver.log").read_text(errors="replace")[-2000:]
    raise TimeoutError(f"the API server is not ready:\n{tail}")
