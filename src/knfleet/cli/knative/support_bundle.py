"""`knfleet support-bundle`: diagnostic information, without secrets."""

import asyncio
import io
import os
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from knfleet.cli.fleet.fleet_options import cluster_options, connection_of
from knfleet.cli.output import explained, progress
from knfleet.kube.errors import KubeError


@click.command()
@cluster_options
@click.option(
    "-f",
    "--output-file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Output file; by default knfleet-support-TIME.tar.gz.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the name of the file.")
@explained(KubeError, OSError)
def command(context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Collect diagnostic information in an archive, without secrets.

    The archive has the hub's custom resources, profiles, clusters, Leases and Events, our own
    Deployments with their logs, versions, and the doctor's findings for failing clusters. Secrets
    are in it by name alone; tokens, keys, certificates and passwords are taken out everywhere.
    """
    from knfleet.kube.client.verbs import Client
    from knfleet.view.support_bundle import SupportFiles

    connection = connection_of(kubeconfig, context)
    began = datetime.now(UTC)
    path = options["path"] or Path(f"knfleet-support-{began:%Y%m%d-%H%M%S}.tar.gz")

    async def collect() -> tuple[dict[str, str], list[str]]:
        async with asyncio.timeout(options["timeout"]), Client(connection) as client:
            with progress(quiet=options["quiet"]) as shown:
                evidence = SupportFiles(client, shown.report if shown else lambda _: None)
                # Asked first, so that a hub that does not answer is an error, not an empty archive.
                await client.version()
                return await evidence.collect(), evidence.notes

    try:
        files, notes = asyncio.run(collect())
    except TimeoutError:
        raise click.ClickException(f"not complete within {options['timeout']} s") from None
    write(path, files)
    click.echo(path)
    if not options["quiet"]:
        left = f"; {len(notes)} things could not be read, see notes.txt in it" if notes else ""
        click.echo(f"{len(files)} files{left}; review it before you share it", err=True)


def write(path: Path, files: dict[str, str]) -> None:
    """Write the archive, for its owner alone; what is there already is not overwritten."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    folder = path.name.removesuffix(".tar.gz")
    with os.fdopen(handle, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in sorted(files.items()):
            content = text.encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))
