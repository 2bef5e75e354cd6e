"""The flags that `knfleet join` and the agent that it installs have in common."""

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]

addon_auth_option = click.option(
    "--addon-kubeclient-registration-auth",
    "addon_auth",
    type=click.Choice(["csr", "token"]),
    default="csr",
    help="How agents of add-ons reach the hub: by certificate or token.",
)


def tunnel_options(command: Command) -> Command:
    """Whether there is a tunnel, and to what it leads."""
    way = click.option(
        "--tunnel",
        type=click.Choice(["always", "auto", "never"]),
        default="auto",
        help="Whether the hub reaches the cluster through its agent; auto: if it cannot directly.",
    )
    services = click.option(
        "--tunnel-service",
        "services",
        multiple=True,
        metavar="NAMESPACE/NAME:PORT",
        help="Service that the hub may reach through the agent, beside the API server.",
    )
    return way(services(command))
