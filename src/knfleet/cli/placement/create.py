"""`knfleet create placement`: select clusters, by the flags of clusteradm."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    on_cluster,
    print_progress,
)
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.api.meta import Object
    from knfleet.kube.client.verbs import Client


@click.command("placement")
@cluster_options
@click.option("--namespace", "-n", default="default", show_default=True, help="Its namespace.")
@click.option("--clustersets", multiple=True, help="Sets to select from, as s1,s2; all by default.")
@click.option(
    "--label-selectors", multiple=True, help="Labels of clusters, as region=apac,tier!=test."
)
@click.option("--cel", multiple=True, metavar="EXPRESSION", help="CEL over managedCluster.")
@click.option("--count", type=click.IntRange(min=0), help="How many clusters; all by default.")
@click.option(
    "--prioritizers",
    multiple=True,
    help="As BuiltIn:Steady:3 or AddOn:RESOURCE:SCORE:1, with the weight last.",
)
@click.option("--overwrite", is_flag=True, help="Change a placement that exists already.")
@click.option("--dry-run", is_flag=True, help="Only ask the hub whether it would accept it.")
@click.argument("name")
@explained(KubeError)
def command(name: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Create a placement: select clusters of the sets that are bound to its namespace.

    \b
    knfleet create placement web -n apps --label-selectors region=apac
    knfleet create placement web -n apps --count 2 --prioritizers BuiltIn:ResourceAllocatableCPU:1
    """
    from knfleet.api.cluster.clusterset import BINDINGS
    from knfleet.api.cluster.placement import PLACEMENTS
    from knfleet.kube.errors import AlreadyExists

    namespace = options["namespace"]
    manifest = {
        "apiVersion": PLACEMENTS.api_version,
        "kind": PLACEMENTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec_of(options),
    }

    async def work(client: "Client") -> bool:
        dry_run = options["dry_run"]
        if options["overwrite"]:
            await client.apply(PLACEMENTS, manifest, dry_run=dry_run)
        else:
            await client.create(PLACEMENTS, manifest, dry_run=dry_run)
        return bool((await client.list(BINDINGS, namespace)).items)

    try:
        is_bound = on_cluster(connection_of(kubeconfig, context), work)
    except AlreadyExists as error:
        raise click.ClickException(
            f"Placement {namespace}/{name} exists already; --overwrite changes it"
        ) from error
    suffix = " (dry run)" if options["dry_run"] else ""
    click.echo(f"Placement {namespace}/{name} is created{suffix}")
    if not is_bound:
        print_progress(
            f"No cluster set is bound to namespace {namespace}, so nothing is selected; bind one:"
            f" knfleet clusterset bind global -n {namespace}"
        )


def spec_of(options: dict[str, Any]) -> "Object":
    """The spec that the flags ask for."""
    spec: Object = {}
    if sets := words(options["clustersets"]):
        spec["clusterSets"] = sets
    if options["count"] is not None:
        spec["numberOfClusters"] = options["count"]
    selector = selector_of(options)
    if selector:
        spec["predicates"] = [{"requiredClusterSelector": selector}]
    if chosen := words(options["prioritizers"]):
        spec["prioritizerPolicy"] = {
            "configurations": [prioritizer_of(each) for each in chosen],
        }
    return spec


def words(values: tuple[str, ...]) -> list[str]:
    """The words of a flag that may be given several times, each with commas."""
    return [word for value in values for word in filter(None, value.split(","))]


def selector_of(options: dict[str, Any]) -> "Object":
    """The selector that the flags ask for."""
    import msgspec

    from knfleet.expressions.selectors import parse_selector

    selector: Object = {}
    if options["label_selectors"]:
        try:
            labels = parse_selector(",".join(options["label_selectors"]))
        except ValueError as error:
            raise click.UsageError(f"--label-selectors: {error}") from error
        selector["labelSelector"] = msgspec.to_builtins(labels)
    if options["cel"]:
        from knfleet.hub.placement.scheduler.cel_predicates import CelPredicates

        problem = CelPredicates().problem(options["cel"])
        if problem:
            raise click.UsageError(f"--cel: {problem}")
        selector["celSelector"] = {"celExpressions": list(options["cel"])}
    return selector


def prioritizer_of(text: str) -> "Object":
    """A prioritizer and its weight."""
    kind, *parts = text.split(":")
    usage = f"--prioritizers {text}: write it as BuiltIn:Steady:3 or AddOn:RESOURCE:SCORE:1"
    try:
        weight = int(parts[-1])
    except (IndexError, ValueError) as error:
        raise click.UsageError(usage) from error
    if kind == "BuiltIn" and len(parts) == 2:
        coordinate: Object = {"type": "BuiltIn", "builtIn": parts[0]}
    elif kind == "AddOn" and len(parts) == 3:
        score = {"resourceName": parts[0], "scoreName": parts[1]}
        coordinate = {"type": "AddOn", "addOn": score}
    else:
        raise click.UsageError(usage)
    return {"scoreCoordinate": coordinate, "weight": weight}
