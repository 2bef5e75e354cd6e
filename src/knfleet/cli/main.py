"""The `knfleet` command: a table of commands, each imported only when it is used.

Start-up time is a feature here (`kubectl knfleet` and credential plugins are typed often), so the
table carries the one-line helps, and nothing but click is imported before a command is chosen.
"""

import importlib
import sys
from typing import NamedTuple

import click

from knfleet import __version__


class Entry(NamedTuple):
    """Where a command lives, and what the overview says about it."""

    module: str
    help: str


COMMANDS: dict[str, Entry] = {
    "accept": Entry("knfleet.cli.accept", "Take clusters in that asked to join."),
    "agent": Entry("knfleet.cli.agent", "Keep this cluster joined to its hub."),
    "clean": Entry("knfleet.cli.clean", "Take a hub off its cluster."),
    "clusterset": Entry(
        "knfleet.cli.clusterset", "Put clusters into sets, and let namespaces see sets."
    ),
    "detach": Entry("knfleet.cli.detach", "Take clusters out of their hub."),
    "doctor": Entry(
        "knfleet.cli.doctor", "Say what is wrong with a cluster, and what to do about it."
    ),
    "get": Entry("knfleet.cli.get", "Print tokens, and the clusters of a hub."),
    "init": Entry("knfleet.cli.init", "Make a cluster a hub, and print how clusters join it."),
    "join": Entry("knfleet.cli.join", "Have a cluster ask a hub to take it in."),
    "unjoin": Entry(
        "knfleet.cli.unjoin", "Take the agent off a cluster, with all that came with it."
    ),
    "bundle": Entry("knfleet.cli.bundle", "Get, list and check Knative's release files."),
    "demo": Entry("knfleet.cli.demo", "Show knfleet on real clusters on this machine."),
    "dev": Entry("knfleet.cli.dev", "Run real control planes on this machine."),
    "hub": Entry(
        "knfleet.cli.hub", "Run a hub: clusters join it, and Knative is installed on them."
    ),
    "manifests": Entry("knfleet.cli.manifests", "Print manifests for `kubectl apply`."),
    "operator": Entry("knfleet.cli.operator", "Install Knative as custom resources ask for it."),
    "plugin": Entry(
        "knfleet.cli.plugin", "Print a credential, as an exec plugin of kubectl and operators."
    ),
    "render": Entry("knfleet.cli.render", "Print the objects that a custom resource installs."),
}


class Commands(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All command names, in the order of the overview."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name].module)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].help) for name in self.list_commands(ctx)])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="knfleet")
def knfleet() -> None:
    """One hub runs Knative, and the fleet under it, on any number of Kubernetes clusters."""


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(knfleet.main(prog_name="knfleet", standalone_mode=True))
