"""`knfleet hub`: the operator, and the fleet that it installs on."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.api.cluster.tunnel import AGENT_PORT, FRONT_PORT
from knfleet.api.operator import OPERATOR_NAMESPACE
from knfleet.cli.output import explained
from knfleet.cli.process import operator
from knfleet.cli.process.web import settings_of
from knfleet.kube.errors import KubeError
from knfleet.operator.settings import SettingError
from knfleet.release.errors import ReleaseError

if TYPE_CHECKING:
    from knfleet.hub.tunnel.tunnel_server import TunnelOptions
    from knfleet.runtime.http.listen_address import ListenAddress


@explained(ReleaseError, KubeError, SettingError)
def run(
    kubeconfig: Path | None,
    context: str | None,
    server: str | None,
    auto_approved: tuple[str, ...],
    auto_approved_grpc: tuple[str, ...],
    **options: Any,
) -> None:
    """Run a hub: clusters join it, and Knative is installed on them.

    Takes all flags and the environment of `knfleet operator`. Without a provider file, clusters
    are reached with the tokens that their agents hand over. With --web it has a dashboard, to
    which people log in with tokens of their own.
    """
    from knfleet.hub.main import HubSettings, build
    from knfleet.hub.manager import HubOptions
    from knfleet.hub.profiles.builtin_providers import BuiltInProviders
    from knfleet.install.hub_manifests import related_resources
    from knfleet.plugins.inprocess import InProcessPlugins
    from knfleet.runtime.http.listen_address import ListenAddress, bind_host

    parts = operator.prepared(kubeconfig, context, server, options)
    users, by_grpc = (
        frozenset(name for names in each for name in names.split(",") if name)
        for each in (auto_approved, auto_approved_grpc)
    )
    if parts["providers"] is None:
        environment = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig.absolute())}
        parts["providers"] = BuiltInProviders(environment)
        parts["providers"].run_plugin = InProcessPlugins()
    port = options["webhook_port"]
    fleet = HubOptions(
        auto_approved_users=users,
        auto_approved_grpc_users=by_grpc,
        related_resources=related_resources(),
        webhook=ListenAddress(bind_host(), port) if port else None,
        namespace=parts["settings"].system_namespace,
        tunnel=tunnel_options(options),
        loopback_gates=options["loopback_gates"],
    )
    parts["settings"] = HubSettings(parts["settings"], fleet)
    if options["web"] is None:
        operator.start(partial(build, **parts))
        return
    from knfleet.web.server.main import EmbeddedDashboard, build_hub

    web = settings_of({**options, "address": options["web"], "login": True})
    operator.start(partial(build_hub, inside=EmbeddedDashboard(**parts, web=web)))


def tunnel_options(options: dict[str, Any]) -> "TunnelOptions | None":
    """How the tunnel is set up, as the flags say; None: there is none."""
    from knfleet.api.cluster.tunnel import FRONT_SERVICE, TUNNEL_SERVICE
    from knfleet.hub.tunnel.tunnel_endpoint import endpoint_problem, front_problem
    from knfleet.hub.tunnel.tunnel_server import TunnelOptions

    endpoint: str = options["tunnel_endpoint"]
    if not endpoint:
        return None
    if problem := endpoint_problem(endpoint):
        raise click.UsageError(f"--tunnel-endpoint {endpoint}: {problem}")
    namespace = os.environ.get("SYSTEM_NAMESPACE") or OPERATOR_NAMESPACE
    if options["tunnel_front"] and (problem := front_problem(options["tunnel_front"])):
        raise click.UsageError(f"--tunnel-front {options['tunnel_front']}: {problem}")
    front = options["tunnel_front"] or f"https://{FRONT_SERVICE}.{namespace}.svc:{FRONT_PORT}"
    return TunnelOptions(
        agents=listen_address(options, "tunnel_listen"),
        consumers=listen_address(options, "tunnel_front_listen"),
        endpoint=endpoint,
        front=front,
        server_name=f"{TUNNEL_SERVICE}.{namespace}.svc",
        namespace=namespace,
        replica=replica_address(options),
    )


def replica_address(options: dict[str, Any]) -> str:
    """Where other replicas reach this one's front: the pod's own address."""
    host = os.environ.get("POD_IP", "")
    port = str(options["tunnel_front_listen"]).rpartition(":")[2]
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}") if host else ""


def listen_address(options: dict[str, Any], name: str) -> "ListenAddress":
    """Where to listen, as a flag says: [HOST:]PORT."""
    from knfleet.runtime.http.listen_address import ListenAddress, bind_host

    host, _, port = str(options[name]).rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        flag = "--" + name.replace("_", "-")
        raise click.UsageError(f"{flag} {options[name]}: write a port, or host:port")
    return ListenAddress(host.strip("[]") or bind_host(), int(port))


AUTO_APPROVED = click.Option(
    ["--auto-approved-csr-users", "--cluster-auto-approval-users", "auto_approved"],
    multiple=True,
    metavar="USER,…",
    help="Users whose clusters are accepted automatically, beside those of the ClusterManager.",
)
TUNNEL = (
    click.Option(
        ["--tunnel-endpoint"],
        default="",
        metavar="HOST:PORT",
        help="How agents reach the tunnel, or LoadBalancer; without it there is none.",
    ),
    click.Option(
        ["--tunnel-listen"],
        default=str(AGENT_PORT),
        metavar="[HOST:]PORT",
        help="Where agents connect to.",
    ),
    click.Option(
        ["--tunnel-front"],
        default="",
        metavar="URL",
        help="How consumers reach the tunnel; by the Service on the hub unless given.",
    ),
    click.Option(
        ["--tunnel-front-listen"],
        default=str(FRONT_PORT),
        metavar="[HOST:]PORT",
        help="Where consumers connect to.",
    ),
)
AUTO_APPROVED_GRPC = click.Option(
    ["--auto-approved-grpc-users", "auto_approved_grpc"],
    multiple=True,
    metavar="USER,…",
    help="The same for clusters that register over gRPC.",
)
WEBHOOK_PORT = click.Option(
    ["--webhook-port"],
    type=click.IntRange(0, 65535),
    default=0,
    help="Serve webhooks there; not at all when not given.",
)
LOOPBACK_GATES = click.Option(
    ["--allow-loopback-gates", "loopback_gates"],
    is_flag=True,
    envvar="KNFLEET_ALLOW_LOOPBACK_GATES",
    help="Let gates of KnativeFleets ask addresses of the hub's own pod; for tests.",
)
WEB = (
    click.Option(
        ["--web", "web"],
        is_flag=False,
        flag_value="",
        metavar="[HOST:PORT]",
        help="Serve a dashboard; by default on 127.0.0.1:8787.",
    ),
    click.Option(
        ["--web-actions", "actions"], is_flag=True, help="Allow actions in the dashboard."
    ),
    click.Option(
        ["--web-tls-cert-file", "certificate"],
        type=click.Path(path_type=Path),
        help="TLS certificate of the dashboard.",
    ),
    click.Option(
        ["--web-tls-private-key-file", "key"],
        type=click.Path(path_type=Path),
        help="TLS key of the dashboard.",
    ),
    click.Option(
        ["--web-insecure-http", "plain"], is_flag=True, help="Serve HTTP, behind a proxy with TLS."
    ),
    click.Option(["--web-name", "names"], multiple=True, help="Host name of the dashboard."),
)

command = operator.GoFlags(
    "hub",
    callback=run,
    params=[
        *operator.command.params,
        AUTO_APPROVED,
        AUTO_APPROVED_GRPC,
        WEBHOOK_PORT,
        LOOPBACK_GATES,
        *TUNNEL,
        *WEB,
    ],
    help=run.__doc__,
)
