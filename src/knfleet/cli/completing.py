"""Names for the shell's completion: quick, bounded, and silent when the hub does not answer."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from knfleet.overview.model import Fleet

SECONDS = 2.0
"""A shell that waits longer for names is worse than one without them."""


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


def install_items(fleet: "Fleet | None") -> list[CompletionItem]:
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


def cluster_items(fleet: "Fleet | None") -> list[CompletionItem]:
    """Clusters by name."""
    rows = fleet.clusters if fleet is not None else ()
    return [CompletionItem(row.name, help="cluster") for row in rows]


def beginning(items: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    """Those that begin so, each once."""
    found = {each.value: each for each in items if each.value.startswith(incomplete)}
    return list(found.values())


def fleet_for(context: click.Context) -> "Fleet | None":
    """The fleet of the hub that the line so far names; None when it does not answer at once."""
    from knfleet.cli.fleet import connection_of
    from knfleet.kube.client import Client, Options
    from knfleet.kube.errors import KubeError
    from knfleet.overview.reading import read_fleet

    options = Options(deadline_seconds=SECONDS, connect_seconds=SECONDS, attempts=1)
    kubeconfig: Path | None = context.params.get("kubeconfig")

    async def read() -> "Fleet":
        connection = connection_of(kubeconfig, context.params.get("context"))
        async with asyncio.timeout(SECONDS), Client(connection, options) as client:
            return await read_fleet(client)

    try:
        return asyncio.run(read())
    except (KubeError, TimeoutError, OSError, ValueError):
        return None
