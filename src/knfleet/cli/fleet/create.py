"""`knfleet create`: objects of the hub, by the verbs of clusteradm."""

import click

from knfleet.cli.placement import create as placement
from knfleet.cli.work import create


@click.group()
def command() -> None:
    """Create works and placements."""


command.add_command(create.command)
command.add_command(placement.command)
