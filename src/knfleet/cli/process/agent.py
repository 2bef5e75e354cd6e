"""`knfleet agent`: the process on a spoke, with the flags of the registration agent."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.aws_options import roles_of
from knfleet.cli.fleet.fleet_options import gates_of
from knfleet.cli.output import explained
from knfleet.cli.process.agent_options import addon_auth_option, tunnel_options
from knfleet.cli.process.operator import GoFlags, klog_options, switch
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.agent.assembly import AgentEnvironment
    from knfleet.agent.settings import AgentSettings
    from knfleet.agent.work.work_settings import WorkSettings
    from knfleet.kube.endpoint import Connection, Endpoint
    from knfleet.runtime.http.listen_address import ListenAddress

TAKEN = (
    "cloudevents-client-codecs",
    "cloudevents-client-id",
    "grpc-config",
    "workload-source-config",
    "workload-source-driver",
    "kube-api-qps",
    "kube-api-burst",
    "hub-kubeconfig-secret",
    "addon-installation-namespace",
    "bootstrap-kubeconfigs",
    "hub-connection-timeout-seconds",
)
"""Flags that say nothing to us."""
FILE = click.Path(path_type=Path)
ADDON_TOKEN_SECONDS = 365 * 24 * 3600
LEAST_ADDON_TOKEN_SECONDS = 600


def taken_options(command: Any) -> Any:
    """Flags of the registration agent that are taken and passed over."""
    for name in TAKEN:
        command = click.option(f"--{name}", hidden=True, expose_value=False)(command)
    return command


@click.command(cls=GoFlags)
@click.option(
    "--kubeconfig",
    type=FILE,
    help="Kubeconfig of the cluster with the agent's Secrets; by default in-cluster.",
)
@click.option(
    "--spoke-kubeconfig", type=FILE, help="Kubeconfig of the managed cluster, if it is another."
)
@click.option(
    "--spoke-cluster-name",
    "--cluster-name",
    "cluster",
    default="",
    help="Name of the managed cluster.",
)
@click.option("--agent-id", "--agent-name", "agent", default="", help="Name of this agent.")
@click.option(
    "--bootstrap-kubeconfig", "bootstrap", type=FILE, help="Bootstrap kubeconfig for the hub."
)
@click.option("--hub-kubeconfig-dir", "folder", type=FILE, help="Folder for the hub's kubeconfig.")
@click.option("--namespace", default="", help="Namespace of the agent's Secrets.")
@click.option(
    "--spoke-external-server-urls",
    "urls",
    default="",
    help="Address at which the hub reaches the cluster.",
)
@click.option(
    "--cluster-healthcheck-period", "period", default="1m", help="Interval of health checks."
)
@click.option(
    "--max-custom-cluster-claims",
    "claims",
    type=click.IntRange(0),
    default=20,
    help="Maximum number of custom claims that are reported.",
)
@click.option(
    "--reserved-cluster-claim-suffixes",
    "suffixes",
    default="",
    help="Suffixes of claims that are always reported, as a,b.",
)
@click.option("--feature-gates", "gates", multiple=True, help="As ClusterProperty=true.")
@click.option(
    "--client-cert-expiration-seconds",
    "lifetime",
    type=int,
    default=0,
    help="Requested lifetime of certificates; the hub decides by default.",
)
@click.option(
    "--cluster-annotations", "annotations", default="", help="Annotations of the ManagedCluster."
)
@click.option(
    "--registration-auth", "auth", default="csr", help="Registration driver: csr, grpc or awsirsa."
)
@click.option("--hub-cluster-arn", "hub_arn", default="", help="With awsirsa: ARN of the hub.")
@click.option(
    "--managed-cluster-arn", "managed_arn", default="", help="With awsirsa: ARN of this cluster."
)
@click.option(
    "--grpc-bootstrap-config",
    "grpc",
    type=FILE,
    help="Configuration of a gRPC client with a token, beside the bootstrap kubeconfig.",
)
@click.option(
    "--access-token-seconds",
    "token",
    type=click.IntRange(600),
    default=3600,
    help="Lifetime of the token for the hub; it is renewed before it expires.",
)
@click.option(
    "--appliedmanifestwork-eviction-grace-period",
    "eviction",
    default="60m",
    help="How long objects stay whose work is gone from the hub; 876000h and more: for ever.",
)
@click.option(
    "--status-sync-interval",
    "sync",
    default="60s",
    help="How often objects are read that are too many to be watched by name.",
)
@click.option(
    "--max-json-raw-length",
    "raw_length",
    type=click.IntRange(1, 1024),
    default=1024,
    help="Characters of feedback values as JSON.",
)
@addon_auth_option
@click.option(
    "--addon-token-expiration-seconds",
    "addon_token",
    type=click.IntRange(LEAST_ADDON_TOKEN_SECONDS),
    default=ADDON_TOKEN_SECONDS,
    help="How long tokens of add-ons' agents last.",
)
@switch("--no-access", "Hand over no token for the cluster.")
@tunnel_options
@switch("--disable-leader-election", "Taken for compatibility: there is one agent.")
@click.option("--listen", default="", help="Address of /healthz, as 127.0.0.1:8000.")
@click.option("--v", "verbosity", type=int, default=0, help="Log level; 4 and more: debug.")
@klog_options
@taken_options
@explained(KubeError)
def command(**options: Any) -> None:
    """Run the agent of a managed cluster.

    Registers the cluster with the hub, renews its certificate and its Lease, reports the status of
    the cluster, applies ManifestWorks, gives agents of add-ons their credentials, and provides a
    token by which the hub's operator accesses it.
    """
    spare_memory()
    from knfleet.agent.assembly import build
    from knfleet.runtime import logs
    from knfleet.runtime.process import run_process

    logs.configure("debug" if options["verbosity"] >= 4 else "info")
    environment = agent_environment(options)
    begin = partial(build, environment=environment, settings=settings(options, environment))
    raise SystemExit(run_process(begin))


def spare_memory() -> None:
    """Keep out what structlog loads to colour tracebacks: a tenth of all that the agent needs."""
    modules: dict[str, Any] = sys.modules
    modules.setdefault("rich", None)


def agent_environment(options: dict[str, Any]) -> "AgentEnvironment":
    """Where the agent runs, as its flags say."""
    from knfleet.agent.assembly import AgentEnvironment

    home = connection(options["kubeconfig"])
    path = options["spoke_kubeconfig"]
    return AgentEnvironment(
        spoke=connection(path) if path else home,
        home=home,
        bootstrap=options["bootstrap"],
        grpc=options["grpc"],
        folder=options["folder"],
        listen=bind(options["listen"]),
    )


def connection(path: Path | None) -> "Connection":
    """The cluster of a kubeconfig, else the one that we run in."""
    from knfleet.kube.auth.in_cluster import default_connection
    from knfleet.kube.auth.kubeconfig import load

    return load([path]) if path else default_connection()


def bind(listen: str) -> "ListenAddress | None":
    """Where to listen, if anywhere."""
    from knfleet.runtime.http.listen_address import ListenAddress, bind_host

    if not listen:
        return None
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--listen {listen}: an address and a port, as 127.0.0.1:8000")
    host_override = os.environ.get("KNFLEET_BIND_ADDRESS")
    return ListenAddress(host_override or host.strip("[]") or bind_host(), int(port))


def settings(options: dict[str, Any], environment: "AgentEnvironment") -> "AgentSettings":
    """What the flags ask for, checked."""
    from knfleet.agent.registration.cluster_names import AgentNames
    from knfleet.agent.settings import LEAST_LIFETIME_SECONDS, AgentSettings
    from knfleet.agent.status.cluster_status import ClaimFilter
    from knfleet.api.operator import AGENT_NAMESPACE, CLAIM_GATE, PROPERTY_GATE

    check_name(options["cluster"])
    check_driver(options["auth"])
    if 0 < options["lifetime"] < LEAST_LIFETIME_SECONDS:
        raise click.UsageError(
            f"--client-cert-expiration-seconds: at least {LEAST_LIFETIME_SECONDS}, or 0"
        )
    gates = dict(gates_of(",".join(options["gates"])))
    reserved: str = options["suffixes"]
    suffixes = tuple(suffix for suffix in reserved.split(",") if suffix)
    is_pod = "KUBERNETES_SERVICE_HOST" in os.environ and not options["kubeconfig"]
    here = environment.home.namespace if is_pod else ""
    return AgentSettings(
        asked=AgentNames(options["cluster"], options["agent"]),
        auth_type=options["auth"],
        roles=roles_of(options["auth"], options["hub_arn"], options["managed_arn"]),
        namespace=here or options["namespace"] or AGENT_NAMESPACE,
        health_seconds=seconds(options["period"]),
        lifetime_seconds=options["lifetime"],
        annotations=annotations(options["annotations"]),
        client_configs=tuple(client_configs(options["urls"], environment.spoke.endpoint)),
        claim_filter=ClaimFilter(options["claims"], suffixes),
        has_claims=gates.get(CLAIM_GATE, True),
        has_properties=gates.get(PROPERTY_GATE, False),
        spoke=reachable(options["urls"], environment.spoke.endpoint),
        hands_over=not options["no_access"],
        token_seconds=options["token"],
        tunnel=options["tunnel"],
        tunnel_services=checked_services(options["services"]),
        works=work_settings(options, gates),
        addon_tokens=options["addon_auth"] == "token",
        addon_token_seconds=options["addon_token"],
        klusterlet=os.environ.get("KNFLEET_KLUSTERLET", ""),
    )


def checked_services(services: tuple[str, ...]) -> tuple[str, ...]:
    """Services for the tunnel, each as it must be written."""
    from knfleet.agent.tunnel.tunnel_targets import service_address

    for text in services:
        try:
            service_address(text)
        except ValueError as error:
            raise click.UsageError(f"--tunnel-service: {error}") from error
    return services


def work_settings(options: dict[str, Any], gates: dict[str, bool]) -> "WorkSettings":
    """How works are handled, as the flags say."""
    from datetime import timedelta

    from knfleet.agent.work.eviction import NEVER
    from knfleet.agent.work.observed.feedback import FeedbackOptions
    from knfleet.agent.work.work_settings import WorkSettings
    from knfleet.api.operator import EXECUTOR_CACHE_GATE, RAW_FEEDBACK_GATE

    grace = seconds(options["eviction"], "--appliedmanifestwork-eviction-grace-period")
    return WorkSettings(
        eviction_grace=min(timedelta(seconds=min(grace, NEVER.total_seconds())), NEVER),
        feedback=FeedbackOptions(gates.get(RAW_FEEDBACK_GATE, False), options["raw_length"]),
        poll_seconds=max(seconds(options["sync"], "--status-sync-interval"), 1.0),
        executor_caches=gates.get(EXECUTOR_CACHE_GATE, False),
    )


def check_driver(name: str) -> None:
    """Refuse a registration driver that this agent has not."""
    import importlib.util

    if name not in ("csr", "grpc", "awsirsa"):
        raise click.UsageError(
            f"--registration-auth {name}: not supported; use csr, grpc or awsirsa"
        )
    if name == "grpc" and importlib.util.find_spec("grpc") is None:
        raise click.UsageError(
            "--registration-auth grpc: install the extra by `pip install 'knfleet[grpc]'`, or use"
            " the image, which has it"
        )


def check_name(name: str) -> None:
    """Refuse a name that no cluster can have."""
    from knfleet.agent.registration.cluster_names import name_problem

    if not name:
        raise click.UsageError("--spoke-cluster-name is missing; it is the cluster's name")
    if problem := name_problem(name):
        raise click.UsageError(f"--spoke-cluster-name {name}: {problem}")


def seconds(text: str, flag: str = "--cluster-healthcheck-period") -> float:
    """How long a flag's duration is."""
    from knfleet.operator.settings import SettingError, duration_seconds

    try:
        found = duration_seconds(text)
    except SettingError as error:
        raise click.UsageError(f"{flag}: {error}") from error
    if found <= 0:
        raise click.UsageError(f"{flag}: it has to be more than 0")
    return found


def annotations(text: str) -> dict[str, str]:
    """Annotations as `a=b,c=d`; each gets the prefix that agents must use."""
    from knfleet.api.cluster.managedcluster import AGENT_ANNOTATIONS

    found: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, mark, value = pair.partition("=")
        if not mark:
            raise click.UsageError(f"--cluster-annotations {pair}: write name=value")
        found[AGENT_ANNOTATIONS + name.removeprefix(AGENT_ANNOTATIONS)] = value
    return found


def client_configs(urls: str, endpoint: "Endpoint") -> list[dict[str, str]]:
    """The address of the cluster that is reported to the hub."""
    import base64

    found: list[dict[str, str]] = []
    for url in filter(None, urls.split(",")):
        if not url.startswith("https://"):
            raise click.UsageError(f"--spoke-external-server-urls {url}: it is not an https:// URL")
        ca = base64.b64encode(endpoint.ca).decode() if endpoint.ca else ""
        found.append({"url": url, "caBundle": ca} if ca else {"url": url})
    return found


def reachable(urls: str, endpoint: "Endpoint") -> "Endpoint":
    """Where the hub's operator reaches the cluster: the first external URL, else as we do."""
    from msgspec.structs import replace

    first = urls.split(",", maxsplit=1)[0]
    return replace(endpoint, server=first, proxy_url=None) if first else endpoint
