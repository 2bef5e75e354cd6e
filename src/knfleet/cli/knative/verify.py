"""`knfleet verify`: whether an installation serves requests or delivers events."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.completion_names import names_of_rows
from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    on_cluster,
    print_json,
    print_yaml,
)
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.kube.client.verbs import Client
    from knfleet.view.operations.verification_requests import VerifyReport


@click.command()
@cluster_options
@click.option(
    "--image",
    default="",
    help="Image that answers GET / with status 200 on the port $PORT; the operator's by default.",
)
@click.option("--text", default="", help="Text that the answer must contain.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    help="How to print.",
)
@click.argument("name", shell_complete=names_of_rows)
@explained(KubeError, ValueError)
def command(name: str, context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Verify that an installation works, or all installations of a KnativeFleet.

    On the target, the operator makes a small Knative Service, waits until it is Ready and sends a
    request through the ingress; for Eventing it makes a Broker and a Trigger, and an event must
    reach the Trigger's subscriber. All of it is removed afterwards. The result is also the
    condition Verified of the custom resource.

    Exit code 0 when everything was verified, else 1. On dev clusters, whose pods are simulated,
    nothing can be verified.

    \b
    knfleet verify knative-serving/edge-1
    knfleet verify fleet/prod --image registry.example.com/hello:1 --text Hello
    """
    from knfleet.view.operations.verification_requests import request_for, verify

    seconds: int = options["timeout"]
    request = request_for(options["image"], options["text"], seconds)
    is_text = options["output"] == "text"

    def report(found: "VerifyReport") -> None:
        if is_text:
            click.echo(str(found))

    async def work(client: "Client") -> "list[VerifyReport]":
        return await verify(client, name, request, timeout_seconds=seconds, report=report)

    reports = on_cluster(connection_of(kubeconfig, context), work)
    if not is_text:
        (print_json if options["output"] == "json" else print_yaml)(reports)
    raise SystemExit(0 if all(each.status == "True" for each in reports) else 1)
