"""The gRPC server of Open Cluster Management as a process, and agents that use such a server."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from knfleet.api.operator import HUB_NAMESPACE
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.hub.certificates.port_certificates import PortCertificates, renewal
from knfleet.hub.grpc.grpc_certificates import POLICY
from knfleet.kube.yaml import dump_all
from testbed.clusters import Lent
from testbed.go_build import built
from testbed.peers.leashed import leashed, reserved_port
from testbed.peers.ocm import PACKAGES, OcmAgents, OcmSpoke
from testbed.waiting import until

HOST = "localhost"


class OcmGrpcServer(Struct, frozen=True):
    """Where the server is, and what its clients trust."""

    url: str
    ca: bytes


async def ocm_server(progress: ProgressReporter) -> Path:
    """The server, built unless it is in the cache."""
    return await built("ocm", f"{PACKAGES}/server", "server", progress)


class OcmGrpcFiles(Struct, frozen=True):
    """The certificates of server and signer, as files."""

    folder: Path
    certificates: PortCertificates

    @property
    def controller_flags(self) -> tuple[str, ...]:
        """What makes the registration controller approve and sign for gRPC."""
        return (
            "--enabled-registration-drivers=csr,grpc",
            *("--grpc-ca-file", str(self.folder / "ca.crt")),
            *("--grpc-key-file", str(self.folder / "ca.key")),
        )


def grpc_files(folder: Path) -> OcmGrpcFiles:
    """Make certificates for a server on this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    made = renewal(None, (HOST,), datetime.now(UTC), POLICY).certificates
    contents = {
        "ca.crt": made.bundle,
        "ca.key": made.ca_key,
        "tls.crt": made.certificate,
        "tls.key": made.key,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return OcmGrpcFiles(folder, made)


@contextlib.asynccontextmanager
async def serving(binary: Path, lent: Lent, files: OcmGrpcFiles) -> AsyncGenerator[OcmGrpcServer]:
    """The server runs."""
    folder = files.folder
    port, health = (reserved_port(folder / f"{name}-ports") for name in ("grpc", "health"))
    config = {
        "tls_cert_file": str(folder / "tls.crt"),
        "tls_key_file": str(folder / "tls.key"),
        "client_ca_file": str(folder / "ca.crt"),
        "server_bind_port": str(port),
    }
    (folder / "server.yaml").write_text(dump_all([config]))
    command = (
        *(str(binary), "grpc", "--kubeconfig", str(lent.kubeconfig)),
        *("--namespace", HUB_NAMESPACE, "--listen", f"127.0.0.1:{health}"),
        *("--disable-leader-election", "--server-config", str(folder / "server.yaml")),
    )
    async with leashed(command, log=folder / "server.log", home=folder):
        await until(lambda: is_open(port), f"the server listens; see {folder / 'server.log'}")
        yield OcmGrpcServer(f"{HOST}:{port}", files.certificates.bundle)


async def is_open(port: int) -> bool:
    """Whether a TLS server answers on a port of this machine."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except OSError:
        return False
    writer.close()
    return True


class OcmGrpcSpoke(Struct, frozen=True):
    """A cluster whose agents of Open Cluster Management use a gRPC server."""

    place: OcmSpoke
    bootstrap_config: bytes

    @property
    def config(self) -> Path:
        """The configuration that the registration agent writes."""
        return self.place.hub_folder / "config.yaml"

    @contextlib.asynccontextmanager
    async def registering(self, agents: OcmAgents, *more: str) -> AsyncGenerator[int]:
        """The registration agent runs; its pid."""
        first = self.place.folder / "grpc-bootstrap.yaml"
        first.write_bytes(self.bootstrap_config)
        flags = ("--registration-auth", "grpc", "--grpc-bootstrap-config", str(first))
        written = ("--grpc-config", str(self.config))
        async with self.place.registering(agents, *flags, *written, *more) as pid:
            yield pid

    @contextlib.asynccontextmanager
    async def working(self, agents: OcmAgents, *flags: str) -> AsyncGenerator[int]:
        """The work agent runs; its pid."""
        agent = (self.place.hub_folder / "agent-name").read_text()
        source = ("--workload-source-driver", "grpc", "--workload-source-config", str(self.config))
        client = ("--cloudevents-client-id", f"{self.place.name}-work-agent")
        async with self.place.running(
            "work", agents.work, "--agent-id", agent, *source, *client, *flags
        ) as pid:
            yield pid
