"""`knfleet manifests`: what to `kubectl apply`."""

import click


@click.command()
@click.option("--crds", is_flag=True, help="The CustomResourceDefinitions.")
@click.option(
    "--for",
    "place",
    type=click.Choice(["all", "operator", "hub", "spoke"]),
    default="all",
    help="Only those for Knative, for the hub of a fleet, or for a spoke.",
)
@click.option("-o", "output", type=click.Choice(["yaml", "json"]), default="yaml")
def command(crds: bool, place: str, output: str) -> None:
    """Print manifests for `kubectl apply`.

    \b
    knfleet manifests --crds | kubectl apply -f -
    """
    if not crds:
        raise click.UsageError("say what to print: --crds")
    from knfleet.api.crd import definitions
    from knfleet.api.fleetcrds import hub_definitions, spoke_definitions

    by_place = {
        "operator": definitions(),
        "hub": [*definitions(), *hub_definitions()],
        "spoke": spoke_definitions(),
        "all": [*definitions(), *hub_definitions(), *spoke_definitions()],
    }
    wanted = by_place[place]
    if output == "json":
        import msgspec

        listed = {"apiVersion": "v1", "kind": "List", "items": wanted}
        click.echo(msgspec.json.format(msgspec.json.encode(listed), indent=2))
        return
    from knfleet.kube.yaml import dump_all

    click.echo(dump_all(wanted), nl=False)
