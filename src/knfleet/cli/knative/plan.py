"""`knfleet plan`: what would change, before it does."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_installs
from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    print_json,
    print_progress,
    print_yaml,
)
from knfleet.cli.knative.bundle import chosen_folder, directory_option
from knfleet.cli.knative.status import provider_option
from knfleet.cli.output import progress

if TYPE_CHECKING:
    from knfleet.api.meta import Object
    from knfleet.kube.client.verbs import Client
    from knfleet.view.plan.model import FleetPlan
    from knfleet.view.plan.planner import Planner
    from knfleet.view.plan.preview import PlanSubject


@click.command()
@cluster_options
@provider_option
@directory_option
@click.option(
    "-f",
    "--filename",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="File with custom resources; - reads standard input.",
)
@click.option("--all", "every", is_flag=True, help="All custom resources of the hub.")
@click.option("-n", "--namespace", default="", help="Namespace of NAME.")
@click.option("--version", "version", default="", help="Plan for this version of Knative.")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="File to save the plan to, for `knfleet apply --plan`.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json", "yaml", "name"]),
    default="text",
    help="Output format; wide has a row for each field.",
)
@click.argument("name", required=False, shell_complete=names_of_installs)
def command(name: str | None, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Show what would change on the clusters, object by object and field by field.

    Each API server computes the result (server-side apply as a dry run), so
    what is shown is what changes; nothing is written. Deletions come first. Exit code 0 when
    nothing would change, 2 when something would, 1 on errors.

    \b
    knfleet plan -f serving.yaml
    knfleet plan knative-serving/knative --version 1.23
    knfleet plan --all --version 1.23 -o wide
    knfleet plan -f serving.yaml --save plan.json; knfleet apply --plan plan.json
    """
    if sum(map(bool, (name, options["filename"], options["every"]))) != 1:
        raise click.UsageError(
            "nothing to plan: give the NAME of a custom resource, -f FILE or --all"
        )
    manifests = read(options["filename"]) if options["filename"] else []
    folder = chosen_folder(options["directory"])
    connection = connection_of(kubeconfig, context)

    async def run() -> "tuple[FleetPlan, list[PlanSubject]]":
        from knfleet.kube.client.verbs import Client
        from knfleet.view.target_access import providers_for

        providers = providers_for(options["provider_file"], kubeconfig, context)
        async with Client(connection) as hub:
            subjects = await chosen(hub, name, manifests, options)
            planner = planner_for(hub, folder, providers)
            return await with_progress(planner, subjects), subjects

    plans, subjects = asyncio.run(run())
    show(plans, options["output"])
    if options["save"]:
        from knfleet.view.plan.plan_file import save

        save(options["save"], plans, subjects)
        print_progress(f"saved; carry it out with: knfleet apply --plan {options['save']}")
    raise SystemExit(plans.exit_code)


def read(filename: str) -> "list[Object]":
    """The manifests of a file."""
    from knfleet.kube.yaml import load_all

    with click.open_file(filename, "rb") as file:
        return load_all(file.read(), source="standard input" if filename == "-" else filename)


def planner_for(hub: "Client", folder: Path, providers: Any) -> "Planner":
    """What makes plans with the release files of a folder."""
    import os

    from knfleet.operator.desired_objects import Renderer
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder
    from knfleet.view.plan.planner import Planner

    releases = Releases(folder, cache=ParsedCache(cache_folder() / "manifests"))
    renderer = Renderer(releases, os.environ.get("KUBERNETES_MIN_VERSION", ""))
    return Planner(hub, providers, renderer)


async def chosen(
    hub: "Client", name: str | None, manifests: "list[Object]", options: dict[str, Any]
) -> "list[PlanSubject]":
    """The custom resources that the arguments mean, with another version if one is wanted."""
    from knfleet.view.plan import subjects

    if options["every"]:
        found = await subjects.every(hub, options["namespace"])
    elif name:
        found = [await subjects.by_name(hub, name, options["namespace"])]
    else:
        found = await subjects.of_file(hub, manifests, options["filename"])
    version = options["version"]
    return [subjects.with_version(each, version) for each in found] if version else found


async def with_progress(planner: "Planner", subjects: "list[PlanSubject]") -> "FleetPlan":
    """Plan, and tell how far it is where that takes a while."""
    total = len(subjects)
    with progress(quiet=total < 3) as reporter:

        def done(count: int) -> None:
            if reporter is not None:
                reporter.advance("reading targets", count, total)

        return await planner.plans(subjects, done)


def show(plans: "FleetPlan", output: str) -> None:
    """Print plans."""
    from knfleet.cli.knative import plan_text

    match output:
        case "json":
            print_json(plans)
        case "yaml":
            print_yaml(plans)
        case "name":
            click.echo("".join(f"{each}\n" for each in plan_text.names(plans)), nl=False)
            for plan in plans.plans:
                for problem in plan.problems:
                    print_progress(f"{plan.title}: {problem}")
        case "wide":
            click.echo(plan_text.wide(plans))
        case _:
            click.echo(plan_text.plans_text(plans))
