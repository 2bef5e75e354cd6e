"""`knfleet create`: objects of the hub, by the verbs of clusteradm."""

import click

from knfleet.cli.work import create


@click.group()
def command() -> None:
    """Create works."""


command.add_command(create.command)
