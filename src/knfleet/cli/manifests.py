"""`knfleet manifests`: what to `kubectl apply`."""

import click


@click.command()
@click.option("--crds", is_flag=True, help="The CustomResourceDefinitions.")
@click.option("-o", "output", type=click.Choice(["yaml", "json"]), default="yaml")
def command(crds: bool, output: str) -> None:
    """Print manifests for `kubectl apply`.

    \b
    knfleet manifests --crds | kubectl apply -f -
    """
    if not crds:
        raise click.UsageError("say what to print: --crds")
    from knfleet.api.crd import definitions

    if output == "json":
        import msgspec

        listed = {"apiVersion": "v1", "kind": "List", "items": definitions()}
        click.echo(msgspec.json.format(msgspec.json.encode(listed), indent=2))
        return
    from knfleet.kube.yaml import dump_all

    click.echo(dump_all(definitions()), nl=False)
