"""Names for the shell's completion: quick, bounded, and silent when the hub does not answer."""

import asyncio
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from knfleet.view.fleet_model import FleetView

SECONDS = 2.0
"""A shell that waits longer for names is worse than one without them."""
SECONDS_VARIABLE = "KNFLEET_COMPLETION_SECONDS"
"""For hubs that are far away."""


def names_of_rows(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The clusters and custom resources of the hub whose names begin so."""
    fleet = fleet_for(context)
    return beginning([*install_items(fleet), *cluster_items(fleet)], incomplete)


def names_of_installs(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The custom resources of the hub whose names begin so."""
    return beginning(install_items(fleet_for(context)), incomplete)


def names_of_clusters(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The clusters of the hub whose names begin so."""
    return beginning(cluster_items(fleet_for(context)), incomplete)


def install_items(fleet: "FleetView | None") -> list[CompletionItem]:
    """Custom resources by namespace and name; twins of both kinds by kind too."""
    rows = fleet.installs if fleet is not None else ()
    counts = Counter((row.namespace, row.name) for row in rows)
    return [
        CompletionItem(
            row.ref if counts[row.namespace, row.name] > 1 else f"{row.namespace}/{row.name}",
            help=row.kind,
        )
        for row in rows
    ]


def cluster_items(fleet: "FleetView | None") -> list[CompletionItem]:
    """Clusters by name."""
    rows = fleet.clusters if fleet is not None else ()
    return [CompletionItem(row.name, help="cluster") for row in rows]


def beginning(items: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    """Those that begin so, each once."""
    found = {each.value: each for each in items if each.value.startswith(incomplete)}
    return list(found.values())


def fleet_for(context: click.Context) -> "FleetView | None":
    """The fleet of the hub that the line so far names; None when it does not answer at once."""
    from knfleet.cli.fleet.fleet_options import connection_of
    from knfleet.kube.client.verbs import Client, ClientOptions
    from knfleet.kube.errors import KubeError
    from knfleet.view.fleet_reader import fleet_of, read_objects

    kubeconfig: Path | None = context.params.get("kubeconfig")

    async def read() -> "FleetView":
        seconds = float(os.environ.get(SECONDS_VARIABLE) or SECONDS)
        options = ClientOptions(deadline_seconds=seconds, connect_seconds=seconds, attempts=1)
        connection = connection_of(kubeconfig, context.params.get("context"))
        async with asyncio.timeout(seconds), Client(connection, options) as client:
            return fleet_of(await read_objects(client, metadata_only=True), datetime.now(UTC))

    try:
        return asyncio.run(read())
    except (KubeError, TimeoutError, OSError, ValueError):
        return None
