"""`knfleet grpc-server`: the gRPC server beside the hub."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.output import explained
from knfleet.cli.process.agent import FILE, bind, connection
from knfleet.cli.process.operator import GoFlags, klog_options, switch
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.hub.grpc.main import GrpcServerSettings

MISSING = (
    "the gRPC server needs the extra grpc; install it by `pip install 'knfleet[grpc]'`, or use the"
    " image, which has it"
)


@click.command(cls=GoFlags)
@click.option("--kubeconfig", type=FILE, help="Kubeconfig of the hub; by default in-cluster.")
@click.option("--namespace", default="", help="Namespace of the server's certificates.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8090, help="Port on which agents connect."
)
@click.option(
    "--streams",
    type=click.IntRange(1),
    default=20_000,
    help="Maximum number of subscriptions; an agent has about six.",
)
@click.option("--listen", default="", help="Address of /healthz, as 127.0.0.1:8000.")
@switch("--disable-leader-election", "Taken for compatibility: all replicas serve.")
@click.option("--v", "verbosity", type=int, default=0, help="Log level; 4 and more: debug.")
@klog_options
@explained(KubeError)
def command(**options: Any) -> None:
    """Run the gRPC server of a hub, by which agents register without reaching its API server.

    Agents authenticate by a token or a client certificate; every call is authorised as the agent
    that makes it.
    """
    try:
        from knfleet.hub.grpc.main import build
    except ImportError as error:
        raise click.ClickException(MISSING) from error
    from knfleet.runtime import logs
    from knfleet.runtime.process import run_process

    logs.configure("debug" if options["verbosity"] >= 4 else "info")
    kubeconfig: Path | None = options["kubeconfig"]
    begin = partial(build, connection=connection(kubeconfig), settings=settings(options))
    raise SystemExit(run_process(begin))


def settings(options: dict[str, Any]) -> "GrpcServerSettings":
    """What the flags ask for."""
    from knfleet.api.operator import HUB_NAMESPACE
    from knfleet.hub.grpc.event_service import ServiceLimits
    from knfleet.hub.grpc.main import GrpcServerSettings
    from knfleet.runtime.http.listen_address import ListenAddress, bind_host

    return GrpcServerSettings(
        bind=ListenAddress(bind_host(), options["port"]),
        health=bind(options["listen"]),
        namespace=options["namespace"] or os.environ.get("POD_NAMESPACE", "") or HUB_NAMESPACE,
        limits=ServiceLimits(streams=options["streams"]),
    )
