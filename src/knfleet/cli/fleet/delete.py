"""`knfleet delete`: objects of the hub, by the verbs of clusteradm."""

import click

from knfleet.cli.work import delete


@click.group()
def command() -> None:
    """Delete works."""


command.add_command(delete.command)
