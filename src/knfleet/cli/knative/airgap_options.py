"""Options that the commands for clusters without the Internet have in common."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

releases_option = click.option(
    "--release",
    "releases",
    multiple=True,
    metavar="VERSION",
    help="A release such as 1.23 or 1.23.0; more than once for more. All, when not given.",
)
components_option = click.option(
    "--components",
    metavar="NAME,…",
    default="",
    help="serving, eventing, ingresses and event sources such as kourier or kafka. All, when not"
    " given.",
)
login_option = click.option(
    "--docker-config",
    "login",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The config.json that container tools wrote at a login. By default that of this user.",
)
ca_option = click.option(
    "--ca-file",
    type=click.Path(path_type=Path),
    help="Certificate authorities of the registry, in PEM format, instead of the system's.",
)
layout_argument = click.argument("layout", type=click.Path(path_type=Path))


def place_option(name: str, *, required: bool, help: str) -> Callable[[Any], Any]:  # noqa: A002
    """An option that names a registry."""
    return click.option(name, "place", required=required, metavar="REGISTRY", help=help)


def chosen_components(text: str) -> tuple[str, ...]:
    """The components that an option names; wrong names are wrong usage."""
    from knfleet.operator.spoke_access.release_rights import NAMES

    chosen = tuple(each.strip() for each in text.split(",") if each.strip())
    if unknown := sorted(set(chosen) - set(NAMES)):
        raise click.UsageError(
            f"--components {','.join(unknown)}: there is no such component; there are"
            f" {', '.join(NAMES)}"
        )
    return chosen
