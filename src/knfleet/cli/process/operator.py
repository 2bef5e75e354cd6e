"""`knfleet operator`: the drop-in for the Knative Operator's binary."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.errors import remember
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError
from knfleet.operator.settings import SettingError
from knfleet.release.errors import ReleaseError

if TYPE_CHECKING:
    from knfleet.clusters.provider_file import ProviderFile
    from knfleet.kube.endpoint import Connection

KLOG_FLAGS = (
    "add_dir_header",
    "alsologtostderr",
    "log_backtrace_at",
    "log_dir",
    "log_file",
    "log_file_max_size",
    "logtostderr",
    "one_output",
    "skip_headers",
    "skip_log_headers",
    "stderrthreshold",
    "vmodule",
)
"""Flags of Go's logger, which say nothing to ours."""

Command = Callable[..., Any]


class GoFlags(click.Command):
    """A command whose long flags may be written with a single dash, as Go programs take them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [doubled(argument) for argument in args])


def doubled(argument: str) -> str:
    """An argument with two dashes where it has one; -h stays as it is."""
    is_single = argument.startswith("-") and argument[1:2] not in ("", "-")
    return f"-{argument}" if is_single and argument != "-h" else argument


def switch(name: str, text: str) -> Callable[[Command], Command]:
    """A flag that is on when it is there, and may be given as =true or =false."""
    return click.option(
        name, type=bool, is_flag=False, flag_value=True, default=False, help=text, metavar=""
    )


def klog_options(command: Command) -> Command:
    """The flags of Go's logger, taken and passed over."""
    for name in KLOG_FLAGS:
        option = click.option(f"--{name}", is_flag=False, flag_value="", hidden=True)
        command = option(command)
    return command


@click.command(cls=GoFlags)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Path of the kubeconfig.")
@click.option("--context", "context", help="Context of the kubeconfig.")
@click.option("--server", help="Address of the API server, instead of the kubeconfig's.")
@click.option("--cluster", help="Cluster of the kubeconfig, instead of the context's.")
@click.option("--clusterprofile-provider-file", "provider_file", help="Access providers.")
@click.option("--remote-deployments-poll-interval", "poll_interval", default="10s", hidden=True)
@click.option(
    "--kube-api-qps",
    "qps",
    type=click.FloatRange(0),
    default=0,
    envvar="KUBE_API_QPS",
    help="Requests to the hub in a second at most; no limit when not given.",
)
@click.option(
    "--kube-api-burst",
    "burst",
    type=click.IntRange(0),
    default=0,
    envvar="KUBE_API_BURST",
    help="Requests that may be sent at once before that counts.",
)
@switch("--disable-ha", "Run without leader election.")
@switch("--share-spokes", "Let all replicas work, each on its part of the spokes.")
@switch("--install-crds", "Install our custom resource definitions first.")
@click.option("--releases", "origin", help="Release files: a folder, an archive, or go.")
@click.option("--health-port", type=click.IntRange(1, 65535), help="8080 when not given.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="9090 when not given.")
@click.option(
    "--verify-image",
    "verify_image",
    help="Image of verifications that name none; KNFLEET_VERIFY_IMAGE when not given.",
)
@click.option("--v", "verbosity", type=int, default=0, help="Log level; 4 and more: debug.")
@klog_options
@explained(ReleaseError, KubeError, SettingError)
def command(
    kubeconfig: Path | None, context: str | None, server: str | None, **options: Any
) -> None:
    """Run the operator: install Knative as custom resources specify.

    A drop-in for the Knative Operator, with its flags and environment. Release files come from
    KO_DATA_PATH, or from `knfleet bundle pull`.
    """
    from knfleet.operator.main import build

    start(partial(build, **prepared(kubeconfig, context, server, options)))


def start(build: Command) -> None:
    """Run a process until it is asked to end, and exit with its code."""
    from knfleet.runtime.process import run_process

    raise SystemExit(run_process(build))


def prepared(
    kubeconfig: Path | None, context: str | None, server: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    """All that the flags and the environment say: connection, releases, settings, providers."""
    from msgspec.structs import replace

    from knfleet.operator.settings import from_environment, poll_seconds, verify_image
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder
    from knfleet.runtime import logs

    logs.configure("debug" if options["verbosity"] >= 4 else "info")
    providers = provider_file(options["provider_file"])
    connection = connect(kubeconfig, context, server, cluster=options["cluster"])
    is_pod = "KUBERNETES_SERVICE_HOST" in os.environ and not kubeconfig
    found = from_environment(os.environ, connection.namespace if is_pod else "")
    settings = replace(
        found,
        disable_ha=options["disable_ha"],
        share_spokes=options["share_spokes"],
        install_crds=options["install_crds"],
        verbosity=options["verbosity"],
        requests_per_second=options["qps"],
        burst=options["burst"],
        health_port=options["health_port"] or found.health_port,
        metrics_port=options["metrics_port"] or found.metrics_port,
        poll_seconds=poll_seconds(options["poll_interval"]),
        verify_image=verify_image(options["verify_image"] or found.verify_image),
    )
    folder = release_folder(options["origin"])
    releases = Releases(folder, cache=ParsedCache(cache_folder() / "manifests"))
    return {
        "connection": connection,
        "releases": releases,
        "settings": settings,
        "providers": providers,
    }


def provider_file(path: str | None) -> "ProviderFile | None":
    """The access providers that a flag names; none when it names no file.

    One that is of no use yet ends nothing: it is followed, and conditions say what is wrong.
    """
    from knfleet.clusters.provider_file import ProviderFile
    from knfleet.plugins.inprocess import InProcessPlugins

    if not path:
        return None
    providers = ProviderFile(Path(path))
    providers.run_plugin = InProcessPlugins()
    providers.reload_if_changed()
    return providers


def connect(
    kubeconfig: Path | None,
    context: str | None,
    server: str | None,
    *,
    cluster: str | None = None,
) -> "Connection":
    """The hub, as the flags name it, else as the environment does."""
    from msgspec.structs import replace

    from knfleet.api.meta import HUB
    from knfleet.kube.auth.in_cluster import default_connection
    from knfleet.kube.auth.kubeconfig import load

    if kubeconfig is not None or cluster:
        files = None if kubeconfig is None else [kubeconfig]
        connection = replace(load(files, context, cluster), cluster=HUB)
    else:
        connection = default_connection(context)
    if server:
        connection = replace(connection, endpoint=replace(connection.endpoint, server=server))
    remember(connection, kubeconfig, context)
    return connection


def release_folder(origin: str | None) -> Path:
    """The folder with release files."""
    import asyncio

    from knfleet.release.source.sources import default_folder, source

    if origin:
        return asyncio.run(source(origin).fetch())
    folder = default_folder()
    if not folder.is_dir():
        raise ReleaseError(f"{folder}: there is no such folder; set KO_DATA_PATH to another")
    return folder
