"""`knfleet hub`: the operator, and the fleet that it installs on."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from knfleet.access.providers import ProviderFileError
from knfleet.cli import operator
from knfleet.cli.output import explained
from knfleet.knative.settings import SettingError
from knfleet.kube.errors import KubeError
from knfleet.release.errors import ReleaseError


@explained(ReleaseError, KubeError, SettingError, ProviderFileError)
def run(
    kubeconfig: Path | None,
    context: str | None,
    server: str | None,
    auto_approved: tuple[str, ...],
    **options: Any,
) -> None:
    """Run a hub: clusters join it, and Knative is installed on them.

    Takes all flags and the environment of `knfleet operator`. Without a provider file, clusters
    are reached with the tokens that their agents hand over.
    """
    from knfleet.fleet.builtin import BuiltInProviders
    from knfleet.fleet.hub import HubSettings, build
    from knfleet.fleet.process import FleetOptions
    from knfleet.plugins.inprocess import OwnPlugins

    parts = operator.prepared(kubeconfig, context, server, options)
    users = frozenset(name for names in auto_approved for name in names.split(",") if name)
    if parts["providers"] is None:
        environment = {} if kubeconfig is None else {"KUBECONFIG": str(kubeconfig.absolute())}
        parts["providers"] = BuiltInProviders(environment)
        parts["providers"].run_plugin = OwnPlugins()
    parts["settings"] = HubSettings(parts["settings"], FleetOptions(auto_approved_users=users))
    operator.start(partial(build, **parts))


AUTO_APPROVED = click.Option(
    ["--auto-approved-csr-users", "--cluster-auto-approval-users", "auto_approved"],
    multiple=True,
    metavar="USER,…",
    help="Users whose clusters join without a person, beside those of the ClusterManager.",
)

command = operator.GoFlags(
    "hub", callback=run, params=[*operator.command.params, AUTO_APPROVED], help=run.__doc__
)
