"""`knfleet manifests`: what to `kubectl apply`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.output import fail

if TYPE_CHECKING:
    from knfleet.api.meta import Object


@click.command()
@click.option("--crds", is_flag=True, help="Print the CustomResourceDefinitions only.")
@click.option(
    "--for",
    "place",
    type=click.Choice(["all", "operator", "hub", "spoke"]),
    help="What to install: an operator, a hub, or an agent; with --crds also all.",
)
@click.option("--cluster-name", "cluster", help="With --for spoke: name of the cluster on the hub.")
@click.option("-n", "--namespace", help="Namespace of the operator; by default knative-operator.")
@click.option("--image", help="Image of the operator; by default knfleet with this version.")
@click.option("--multicluster", is_flag=True, help="Install on other clusters as well.")
@click.option(
    "--provider-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Access providers, for --multicluster.",
)
@click.option(
    "--plugin",
    "plugins",
    nargs=3,
    multiple=True,
    metavar="NAME IMAGE PATH",
    help="Mount the image of a credential plugin; may be repeated.",
)
@click.option(
    "--secret-namespace",
    "secret_namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="Namespace whose Secrets plugins may read; may be repeated.",
)
@click.option(
    "--check-profile-use",
    is_flag=True,
    help="Require the permission to use a ClusterProfile from authors of custom resources.",
)
@click.option("--local/--no-local", default=True, help="Whether it may install on its own cluster.")
@click.option("--remote-deployments-poll-interval", "poll_interval", metavar="TIME", help="10s.")
@click.option("--kubernetes-min-version", "minimum_kubernetes", metavar="VERSION", help="v1.25.0.")
@click.option(
    "-o", "output", type=click.Choice(["yaml", "json"]), default="yaml", help="Output format."
)
def command(crds: bool, place: str | None, output: str, **choices: Any) -> None:
    """Print manifests for `kubectl apply`.

    An operator unless --for is given; the Helm chart installs the same objects.
    With --for hub it is what `knfleet init` applies, without the ConfigMap cluster-info.
    With --for spoke it is what `knfleet join` applies, without the Secret
    bootstrap-hub-kubeconfig, which holds a token.

    \b
    knfleet manifests | kubectl apply --server-side -f -
    knfleet manifests --multicluster --provider-file providers.json | kubectl apply …
    knfleet manifests --crds | kubectl apply --server-side -f -
    knfleet manifests --for hub | kubectl apply --server-side -f -
    """
    from knfleet.kube.yaml import dump_all

    cluster: str = choices.pop("cluster") or ""
    if (place == "spoke" and not crds) != bool(cluster):
        raise click.UsageError("--for spoke and --cluster-name NAME go together")
    if crds:
        manifests = crds_for(place or "all")
    elif place in ("hub", "spoke"):
        manifests = fleet_for(cluster, choices)
    elif place == "all":
        raise click.UsageError("--for all chooses among CRDs; add --crds")
    else:
        manifests = chosen(choices)
    if output == "json":
        import msgspec

        listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
        click.echo(msgspec.json.format(msgspec.json.encode(listed), indent=2))
        return
    click.echo(dump_all(manifests), nl=False)


def crds_for(place: str) -> "list[Object]":
    """The CRDs for one kind of cluster."""
    from knfleet.api.crds.fleet import hub_definitions, spoke_definitions
    from knfleet.api.crds.generator import definitions

    by_place = {
        "operator": definitions(),
        "hub": [*definitions(), *hub_definitions()],
        "spoke": spoke_definitions(),
        "all": [*definitions(), *hub_definitions(), *spoke_definitions()],
    }
    return by_place[place]


def fleet_for(cluster: str, choices: dict[str, Any]) -> "list[Object]":
    """What `init` applies, or for a cluster what `join` applies, but for what holds a token."""
    from knfleet.agent.registration.cluster_names import new_name_problem
    from knfleet.cli.fleet.fleet_options import image_from
    from knfleet.install.agent_manifests import AgentInstall, home_objects
    from knfleet.install.deployments import HubInstall, cluster_manager, hub_deployment
    from knfleet.install.hub_manifests import hub_objects

    image = image_from("", choices["image"] or "", "default")
    if not cluster:
        plan = HubInstall(image=image, check_profile_use=choices["check_profile_use"])
        return [*hub_objects(plan), cluster_manager(plan), hub_deployment(plan)]
    if problem := new_name_problem(cluster):
        raise click.UsageError(f"--cluster-name {cluster}: {problem}")
    objects = home_objects(AgentInstall(cluster=cluster, bootstrap=b"", image=image))
    return [each for each in objects if each["kind"] != "Secret"]


def chosen(choices: dict[str, Any]) -> "list[Object]":
    """The objects of an operator as the options ask for it."""
    from knfleet.install.operator_manifests import everything
    from knfleet.install.operator_options import InstallError, OperatorInstall, PluginImage, check

    file: Path | None = choices.pop("provider_file")
    if choices["multicluster"] and file is None:
        raise click.UsageError("--multicluster needs --provider-file FILE")
    if file is not None and not choices["multicluster"]:
        raise click.UsageError("--provider-file is for --multicluster; give both")
    plugins = tuple(PluginImage(*each) for each in choices.pop("plugins"))
    given = {name: value for name, value in choices.items() if value is not None}
    install = OperatorInstall(
        **given, plugins=plugins, providers=file.read_bytes() if file else b""
    )
    try:
        check(install)
    except InstallError as error:
        raise fail(error) from error
    return everything(install)
