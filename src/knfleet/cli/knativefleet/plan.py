"""`knfleet fleet plan` and `knfleet fleet apply`: what a change would do, and to have it done."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    on_cluster,
    print_json,
    print_yaml,
)
from knfleet.cli.knative.bundle import chosen_folder, directory_option
from knfleet.cli.knative.status import provider_option

if TYPE_CHECKING:
    from knfleet.api.meta import Object
    from knfleet.kube.client.verbs import Client
    from knfleet.view.knativefleet.fleet_checks import FleetFindings
    from knfleet.view.knativefleet.fleet_preview import FleetOutlook, FleetPreview


@click.command("plan")
@cluster_options
@provider_option
@directory_option
@click.option(
    "-f", "--filename", "file", metavar="FILE", help="File with the fleet; - reads standard input."
)
@click.option("--version", "version", help="Version of Knative, instead of that of the templates.")
@click.option(
    "--save",
    "path",
    type=click.Path(path_type=Path),
    help="File for the plan, for `knfleet fleet apply`.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    help="How to print.",
)
@click.argument("name", required=False)
def plan(name: str | None, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Show what a change of a fleet would do, wave by wave. Nothing is written.

    The images that clusters would pull are listed by the files of the releases on this machine. The
    clusters are asked for the versions that their CustomResourceDefinitions store objects in: what
    a release would drop is listed as refused.

    Exit code: 0 when nothing would change, 2 when something would, 1 when it cannot be done.

    \b
    knfleet fleet plan prod --version 1.23.0
    knfleet fleet plan -f fleet.yaml --save plan.json
    """
    from knfleet.view.knativefleet.fleet_plan_file import SavedFleetPlan, live_fleet, save
    from knfleet.view.knativefleet.fleet_preview import outlook
    from knfleet.view.knativefleet.fleet_snapshot import read_fleet

    if (name is None) == (options["file"] is None):
        raise click.UsageError("give either the NAME of a fleet, or -f FILE")
    given = None if options["file"] is None else fleet_in(options["file"])

    async def work(client: "Client") -> "tuple[FleetPreview, SavedFleetPlan]":
        if given is None:
            live: Object | None = await read_fleet(client, name or "")
            wanted = stripped(live or {})
        else:
            live, wanted = await live_fleet(client, given["metadata"]["name"]), given
        if options["version"]:
            wanted = with_version(wanted, options["version"])
        # The server adds defaults, and refuses what makes no sense.
        checked = stripped(await dry_run(client, wanted, live))
        found = await outlook(client, checked, live)
        findings = await look(client, found, kubeconfig, context, options)
        meta: Object = {} if live is None else live["metadata"]
        return found.with_findings(findings), SavedFleetPlan(
            manifest=checked,
            digest=found.preview.digest(),
            uid=meta.get("uid", ""),
            generation=meta.get("generation", 0),
        )

    found, saved = on_cluster(connection_of(kubeconfig, context), work)
    if options["output"] == "text":
        from knfleet.cli.knativefleet.fleet_text import preview_text

        click.echo(preview_text(found))
    else:
        (print_json if options["output"] == "json" else print_yaml)(found)
    if found.problems:
        raise SystemExit(1)
    if options["path"] is not None:
        save(options["path"], saved)
        click.echo(f"saved; apply it with: knfleet fleet apply --plan {options['path']}", err=True)
    raise SystemExit(2 if found.has_changes else 0)


@click.command("apply")
@cluster_options
@click.option(
    "--plan",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    help="File written by `knfleet fleet plan --save`.",
)
def apply(path: Path, context: str | None, kubeconfig: Path | None, **_options: Any) -> None:
    """Write the fleet of a plan, if the fleet and its clusters are as they were."""
    from knfleet.view.knativefleet.fleet_plan_file import apply as apply_plan
    from knfleet.view.knativefleet.fleet_plan_file import load

    saved = load(path)
    made = on_cluster(connection_of(kubeconfig, context), lambda client: apply_plan(client, saved))
    name = made["metadata"]["name"]
    click.echo(f"KnativeFleet {name} is written; see knfleet fleet status {name} --watch")


async def look(
    client: "Client",
    found: "FleetOutlook",
    kubeconfig: Path | None,
    context: str | None,
    options: dict[str, Any],
) -> "FleetFindings":
    """What releases and clusters say; nothing without the files of the releases."""
    from knfleet.release.errors import ReleaseError
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder
    from knfleet.view.knativefleet.fleet_checks import FleetChecks, FleetFindings
    from knfleet.view.target_access import providers_for

    try:
        folder = chosen_folder(options["directory"])
    except ReleaseError as error:
        return FleetFindings(unchecked=[f"images and definitions: {error}"])
    releases = Releases(folder, cache=ParsedCache(cache_folder() / "manifests"))
    providers = providers_for(options["provider_file"], kubeconfig, context)
    checks = FleetChecks(client, releases, providers)
    return await checks.run(found.installs(), found.fleet.spec.clusters.namespace)


def fleet_in(file: str) -> "Object":
    """The fleet in a file."""
    from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
    from knfleet.apply.manifest_fields import part
    from knfleet.kube import yaml

    text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    kind = (KNATIVE_FLEETS.api_version, KNATIVE_FLEETS.kind)
    found = [
        each
        for each in yaml.load_all(text, source=file)
        if (each.get("apiVersion"), each.get("kind")) == kind
    ]
    if len(found) != 1:
        raise click.ClickException(
            f"{file}: there must be one KnativeFleet in it, not {len(found)}"
        )
    if not part(found[0], "metadata").get("name"):
        raise click.ClickException(f"{file}: the KnativeFleet has no metadata.name")
    return found[0]


def stripped(manifest: "Object") -> "Object":
    """A fleet as a user writes it."""
    meta = manifest["metadata"]
    kept = {name: meta[name] for name in ("name", "labels", "annotations") if meta.get(name)}
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": kept,
        "spec": manifest["spec"],
    }


def with_version(manifest: "Object", version: str) -> "Object":
    """A fleet whose templates ask for a version."""
    spec = dict(manifest["spec"])
    for component in ("serving", "eventing"):
        if spec.get(component):
            template = spec[component]
            spec[component] = {
                **template,
                "spec": {**(template.get("spec") or {}), "version": version},
            }
    return {**manifest, "spec": spec}


async def dry_run(client: "Client", wanted: "Object", live: "Object | None") -> "Object":
    """What the server would store."""
    from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS

    if live is None:
        return await client.create(KNATIVE_FLEETS, wanted, dry_run=True)
    meta = {**live["metadata"], **wanted["metadata"], "managedFields": None}
    changed = {**live, **wanted, "metadata": meta}
    return await client.replace(KNATIVE_FLEETS, changed, dry_run=True)
