"""`knfleet hub`: the operator, and the fleet that it installs on."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from knfleet.cli.output import explained
from knfleet.cli.process import operator
from knfleet.cli.process.web import settings_of
from knfleet.kube.errors import KubeError
from knfleet.operator.settings import SettingError
from knfleet.release.errors import ReleaseError


@explained(ReleaseError, KubeError, SettingError)
def run(
    kubeconfig: Path | None,
    context: str | None,
    server: str | None,
    auto_approved: tuple[str, ...],
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
    users = frozenset(name for names in auto_approved for name in names.split(",") if name)
    if parts["providers"] is None:
        environment = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig.absolute())}
        parts["providers"] = BuiltInProviders(environment)
        parts["providers"].run_plugin = InProcessPlugins()
    port = options["webhook_port"]
    fleet = HubOptions(
        auto_approved_users=users,
        related_resources=related_resources(),
        webhook=ListenAddress(bind_host(), port) if port else None,
        namespace=parts["settings"].system_namespace,
    )
    parts["settings"] = HubSettings(parts["settings"], fleet)
    if options["web"] is None:
        operator.start(partial(build, **parts))
        return
    from knfleet.web.server.main import EmbeddedDashboard, build_hub

    web = settings_of({**options, "address": options["web"], "login": True})
    operator.start(partial(build_hub, inside=EmbeddedDashboard(**parts, web=web)))


AUTO_APPROVED = click.Option(
    ["--auto-approved-csr-users", "--cluster-auto-approval-users", "auto_approved"],
    multiple=True,
    metavar="USER,…",
    help="Users whose clusters are accepted automatically, beside those of the ClusterManager.",
)
WEBHOOK_PORT = click.Option(
    ["--webhook-port"],
    type=click.IntRange(0, 65535),
    default=0,
    help="Serve webhooks there; not at all when not given.",
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
    params=[*operator.command.params, AUTO_APPROVED, WEBHOOK_PORT, *WEB],
    help=run.__doc__,
)
