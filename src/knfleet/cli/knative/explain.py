"""`knfleet explain`: what a reason means, how to find the cause, and what fixes it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_installs
from knfleet.cli.fleet.fleet_options import cluster_options, connection_of, on_cluster, print_json
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from knfleet.view.fleet_model import FleetView, InstallRow
    from knfleet.view.reasons.explanation import Explanation

WIDTH = 92


def complete(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Reasons, and custom resources when it begins like none."""
    from click.shell_completion import CompletionItem

    from knfleet.view.reasons.catalog import REASONS

    found = [CompletionItem(name) for name in sorted(REASONS) if name.startswith(incomplete)]
    return found if incomplete and found else names_of_installs(context, parameter, incomplete)


@click.command()
@cluster_options
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format."
)
@click.option("--list", "is_list", is_flag=True, help="List all reasons; needs no cluster.")
@click.argument("what", required=False, metavar="REASON|NAME", shell_complete=complete)
@explained(KubeError, ValueError)
def command(what: str | None, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Explain a reason: its meaning, how to find the cause, and how to fix it.

    With the name of a custom resource it explains why that is not ready, with its names filled
    into the commands. Reasons are explained without a cluster.

    \b
    knfleet explain ClusterProfileNotReady
    knfleet explain knative-serving/edge-1
    """
    from knfleet.view.reasons.catalog import REASONS, NoSuchReason
    from knfleet.view.reasons.catalog import explained as texts_of

    if options["is_list"]:
        click.echo("\n".join(f"{name}: {first(text)}" for name, text in sorted(REASONS.items())))
        return
    if not what:
        raise click.UsageError("name a reason or a custom resource; --list shows all reasons")
    try:
        texts = texts_of(what)
        head = ""
    except NoSuchReason as error:
        if "/" not in what and what[:1].isupper():
            raise
        row = install_named(what, kubeconfig, context, error)
        head, texts = about(row)
    if options["output"] == "json":
        print_json([{"reason": name, "explanation": text} for name, text in texts])
        return
    click.echo("\n\n".join(filter(None, [head, *(text_of(*each) for each in texts)])))


def install_named(
    name: str, kubeconfig: Path | None, context: str | None, error: ValueError
) -> "InstallRow":
    """The custom resource of a name; without a hub, the sentence about reasons."""
    from knfleet.kube.errors import ConfigError
    from knfleet.view.fleet_reader import read_fleet
    from knfleet.view.name_lookup import find_install

    try:
        connection = connection_of(kubeconfig, context)
    except ConfigError:
        raise error from None
    fleet: FleetView = on_cluster(connection, read_fleet)
    return find_install(fleet, name)


def about(row: "InstallRow") -> "tuple[str, list[tuple[str, Explanation]]]":
    """How a custom resource stands, and what its reasons mean, with its names in the commands."""
    from knfleet.api.knative.conditions import PAUSED
    from knfleet.view.reasons.catalog import NoSuchReason, filled, names_of
    from knfleet.view.reasons.catalog import explained as texts_of

    name = f"{row.kind} {row.namespace}/{row.name}"
    if row.ready == "True" and not row.paused:
        return f"{name} is ready; there is nothing to explain.", []
    conditions = [
        each
        for each in row.conditions
        if each.reason and (each.status != "True" or each.type == PAUSED)
    ]
    stand = "ready, and paused" if row.ready == "True" else "not ready"
    lines = [f"{name} is {stand}: {row.reason or row.message}".rstrip(": ")]
    lines += [f"  {each.type} is {each.status}: {each.message}" for each in conditions]
    texts: dict[str, Explanation] = {}
    for reason in dict.fromkeys([row.reason, *(each.reason for each in conditions)]):
        try:
            texts |= {each: filled(text, names_of(row)) for each, text in texts_of(reason)}
        except NoSuchReason:
            continue
    return "\n".join(lines), list(texts.items())


def text_of(reason: str, text: "Explanation") -> str:
    """An explanation for a terminal."""
    lines = [reason, *wrapped(text.meaning, "  ")]
    if text.find:
        lines += ["", "  To find the cause"]
        for each in text.find:
            lines += wrapped(each.text, "    - ", "      ")
            lines += [f"        {each.command}"] if each.command else []
    lines += ["", "  What to do", *wrapped(text.fix, "    ")]
    return "\n".join([*lines, "", *wrapped(f"Written on {'; '.join(text.written_on)}", "  ")])


def wrapped(text: str, first_indent: str, indent: str = "") -> list[str]:
    """A text in lines that fit on a screen."""
    import textwrap

    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first_indent,
        subsequent_indent=indent or first_indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def first(text: "Explanation") -> str:
    """The first sentence of a meaning."""
    from knfleet.view.reasons.catalog import sentences

    return sentences(text.meaning)[0]
