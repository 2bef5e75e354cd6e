"""`knfleet rights`: the least rights with which Knative can be installed on a cluster."""

from typing import TYPE_CHECKING, Any

import click

from knfleet.api.cluster.access import ACCESS_ACCOUNT
from knfleet.api.operator import AGENT_NAMESPACE
from knfleet.cli.knative.bundle import chosen_folder, directory_option
from knfleet.cli.output import explained
from knfleet.release.errors import ReleaseError

if TYPE_CHECKING:
    from knfleet.api.knative.resources import Knative
    from knfleet.api.meta import Object
    from knfleet.operator.spoke_access.rights import SpokeRights

MOST_NAMED = 8
DEFAULT_ACCOUNT = f"{AGENT_NAMESPACE}/{ACCESS_ACCOUNT}"


@click.command()
@click.option(
    "--for",
    "place",
    expose_value=False,
    type=click.Choice(["spoke"]),
    default="spoke",
    show_default=True,
    help="Whose rights: the account by which a hub installs Knative on a spoke.",
)
@click.option(
    "--release",
    "releases",
    multiple=True,
    metavar="VERSION",
    help="A release such as 1.23 or 1.23.0; more than once for more. All, when not given.",
)
@click.option(
    "--components",
    metavar="NAME,…",
    default="",
    help="serving, eventing, ingresses and event sources such as kourier or kafka. All, when not"
    " given.",
)
@click.option(
    "-f",
    "--filename",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Rights for the KnativeServings and KnativeEventings in a file instead.",
)
@click.option(
    "--serving-namespace",
    default="knative-serving",
    show_default=True,
    help="Namespace of the KnativeServing.",
)
@click.option(
    "--eventing-namespace",
    default="knative-eventing",
    show_default=True,
    help="Namespace of the KnativeEventing.",
)
@click.option(
    "--account",
    default=DEFAULT_ACCOUNT,
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="The ServiceAccount that gets the rights; without a slash, a user.",
)
@directory_option
@click.option(
    "-o",
    "output",
    type=click.Choice(["yaml", "json", "summary"]),
    default="yaml",
    help="Manifests, or how many rules there are and what remains.",
)
@explained(ReleaseError)
def command(output: str, account: str, **options: Any) -> None:
    """Print the least rights with which a hub installs Knative on a cluster.

    They are made from the release files. With them come Knative's ClusterRoles, since Kubernetes
    lets no user grant more than they have: an administrator of the cluster applies both.
    `knfleet join` does so by itself, for all releases that it knows.

    \b
    knfleet rights --release 1.23 | kubectl apply --server-side -f -
    knfleet rights --release 1.22 --release 1.23 --components serving,kourier
    knfleet rights -f serving.yaml -o summary
    """
    import asyncio

    from knfleet.install.access_manifests import Account, access_objects
    from knfleet.kube.yaml import dump_all

    found = asyncio.run(wanted_rights(options))
    namespace, _, name = account.rpartition("/")
    if not name:
        raise click.UsageError(f"--account {account}: write NAMESPACE/NAME, or the name of a user")
    objects = access_objects(found, Account(name, namespace))
    if output == "summary":
        click.echo(summary(found))
    elif output == "json":
        click.echo(as_json(objects))
    else:
        lines = [f"# {line}".rstrip() for line in summary(found).splitlines()]
        click.echo("\n".join(lines))
        click.echo(dump_all(objects), nl=False)


async def wanted_rights(options: dict[str, Any]) -> "SpokeRights":
    """The rights that the options ask for."""
    from knfleet.operator.spoke_access.release_rights import (
        NAMES,
        RightsChoice,
        release_rights,
        resource_rights,
    )
    from knfleet.operator.spoke_access.rights import UnknownKind
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder

    names: str = options["components"]
    components = tuple(each.strip() for each in names.split(",") if each.strip())
    if unknown := sorted(set(components) - set(NAMES)):
        raise click.UsageError(
            f"--components {','.join(unknown)}: there is no such component; there are"
            f" {', '.join(NAMES)}"
        )
    if options["filename"] and (components or options["releases"]):
        raise click.UsageError("-f says what is installed; leave out --release and --components")
    folder = chosen_folder(options["directory"])
    releases = Releases(folder, cache=ParsedCache(cache_folder() / "manifests"))
    try:
        if options["filename"]:
            return await resource_rights(releases, knatives_in(options["filename"]))
        choice = RightsChoice(
            options["releases"],
            components,
            {"serving": options["serving_namespace"], "eventing": options["eventing_namespace"]},
        )
        return await release_rights(releases, choice)
    except UnknownKind as error:
        raise click.ClickException(str(error)) from error


def knatives_in(filename: str) -> "list[Knative]":
    """The custom resources in a file."""
    from knfleet.cli.knative.render import knatives
    from knfleet.kube.yaml import load_all

    name = "standard input" if filename == "-" else filename
    with click.open_file(filename, "rb") as file:
        return knatives(load_all(file.read(), source=name), name, None)


def summary(rights: "SpokeRights") -> str:
    """How many rules there are, and what remains beyond them, in words."""
    cluster, roles = len(rights.cluster_rules), rights.namespace_rules
    namespaced = f"{rights.rule_count - cluster} in Roles in {', '.join(roles)}"
    lines = [
        f"{rights.rule_count} rules: {cluster} in a ClusterRole, {namespaced}.",
        f"Roles that may be bound, by name: {some(rights.bound)}.",
        f"Roles that may be escalated, by name: {some(rights.escalated)}.",
        f"ClusterRoles that an administrator makes: {some(sorted(rights.provided))}.",
    ]
    return "\n".join(lines)


def some(names: list[str]) -> str:
    """Names, or how many there are of them."""
    if len(names) > MOST_NAMED:
        return f"{len(names)}"
    return ", ".join(names) or "none"


def as_json(objects: "list[Object]") -> str:
    """Objects as one List."""
    import msgspec

    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    return msgspec.json.format(msgspec.json.encode(listed), indent=2).decode()
