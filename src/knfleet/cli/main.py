"""The `knfleet` command: a table of commands, each imported only when it is used.

Start-up time is a feature here (`kubectl knfleet` and credential plugins are typed often), so the
table carries the one-line helps, and nothing but click is imported before a command is chosen.
"""

import importlib
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from knfleet import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class CommandEntry(NamedTuple):
    """Where a command lives, and what the overview says about it."""

    module: str
    help: str


COMMANDS: dict[str, CommandEntry] = {
    "accept": CommandEntry(
        "knfleet.cli.fleet.accept",
        "Accept clusters that asked to join.",
    ),
    "agent": CommandEntry(
        "knfleet.cli.process.agent",
        "Run the agent of a managed cluster.",
    ),
    "airgap": CommandEntry(
        "knfleet.cli.knative.airgap",
        "List, save, push and verify what clusters without the Internet need.",
    ),
    "apply": CommandEntry(
        "knfleet.cli.knative.apply",
        "Apply a plan: write the custom resources that it was made for.",
    ),
    "clean": CommandEntry(
        "knfleet.cli.fleet.clean",
        "Remove a hub from its cluster.",
    ),
    "addon": CommandEntry("knfleet.cli.fleet.addon", "Install, remove, make and explain add-ons."),
    "clusterset": CommandEntry(
        "knfleet.cli.fleet.clusterset",
        "Assign clusters to sets, and bind sets to namespaces.",
    ),
    "completion": CommandEntry(
        "knfleet.cli.completion",
        "Print what a shell needs to complete commands, flags and names.",
    ),
    "create": CommandEntry(
        "knfleet.cli.fleet.create",
        "Create works and placements.",
    ),
    "delete": CommandEntry(
        "knfleet.cli.fleet.delete",
        "Delete works.",
    ),
    "detach": CommandEntry(
        "knfleet.cli.fleet.detach",
        "Detach clusters from their hub.",
    ),
    "doctor": CommandEntry(
        "knfleet.cli.fleet.doctor",
        "Diagnose a cluster: print problems, and how to fix them.",
    ),
    "explain": CommandEntry(
        "knfleet.cli.knative.explain",
        "Explain a reason: its meaning, how to find the cause, and how to fix it.",
    ),
    "fleet": CommandEntry(
        "knfleet.cli.knativefleet.fleet",
        "Show, plan and control rollouts of KnativeFleets.",
    ),
    "get": CommandEntry(
        "knfleet.cli.fleet.get",
        "Print tokens, and the clusters, works and placements of a hub.",
    ),
    "init": CommandEntry(
        "knfleet.cli.fleet.init",
        "Install a hub on a cluster, and print the join command.",
    ),
    "join": CommandEntry(
        "knfleet.cli.fleet.join",
        "Register this cluster with a hub.",
    ),
    "kubeconfig": CommandEntry(
        "knfleet.cli.tunnel.kubeconfig",
        "Print a kubeconfig for a cluster of the fleet.",
    ),
    "proxy": CommandEntry(
        "knfleet.cli.tunnel.proxy",
        "Show how clusters are reached, and run kubectl on them.",
    ),
    "unjoin": CommandEntry(
        "knfleet.cli.fleet.unjoin",
        "Remove the agent and its objects from a cluster.",
    ),
    "audit": CommandEntry(
        "knfleet.cli.audit",
        "Check the record of all writes of a hub, an operator or an agent.",
    ),
    "bundle": CommandEntry(
        "knfleet.cli.knative.bundle",
        "Download, list and verify Knative's release files.",
    ),
    "demo": CommandEntry(
        "knfleet.cli.demo",
        "Run a demonstration on real clusters on this machine.",
    ),
    "dev": CommandEntry(
        "knfleet.cli.dev",
        "Run real control planes on this machine.",
    ),
    "grpc-server": CommandEntry(
        "knfleet.cli.process.grpc_server",
        "Run the gRPC server of a hub, by which agents register without reaching its API server.",
    ),
    "hub": CommandEntry(
        "knfleet.cli.process.hub",
        "Run a hub: clusters join it, and Knative is installed on them.",
    ),
    "manifests": CommandEntry(
        "knfleet.cli.process.manifests",
        "Print manifests for `kubectl apply`.",
    ),
    "move": CommandEntry("knfleet.cli.knative.move", "Move an installation to another cluster."),
    "operator": CommandEntry(
        "knfleet.cli.process.operator",
        "Run the operator: install Knative as custom resources specify.",
    ),
    "placement": CommandEntry(
        "knfleet.cli.placement.placement",
        "Explain why placements select clusters or not.",
    ),
    "plan": CommandEntry(
        "knfleet.cli.knative.plan",
        "Show what would change on the clusters, object by object and field by field.",
    ),
    "plugin": CommandEntry(
        "knfleet.cli.process.plugin",
        "Print a credential, as an exec plugin of kubectl and operators.",
    ),
    "render": CommandEntry(
        "knfleet.cli.knative.render",
        "Print the objects that a custom resource installs.",
    ),
    "rights": CommandEntry(
        "knfleet.cli.fleet.rights",
        "Print the least rights with which a hub installs Knative on a cluster.",
    ),
    "status": CommandEntry(
        "knfleet.cli.knative.status",
        "Show the status of the fleet, or of one installation in detail.",
    ),
    "support-bundle": CommandEntry(
        "knfleet.cli.knative.support_bundle",
        "Collect diagnostic information in an archive, without secrets.",
    ),
    "verify": CommandEntry(
        "knfleet.cli.knative.verify",
        "Verify that an installation works, or all installations of a KnativeFleet.",
    ),
    "verify-server": CommandEntry(
        "knfleet.cli.process.verify_server",
        "Answer requests with a text, and log their paths; `knfleet verify` runs it in a pod.",
    ),
    "wait": CommandEntry(
        "knfleet.cli.knative.wait",
        "Wait until installations or clusters are ready, removed, or have a condition.",
    ),
    "web": CommandEntry(
        "knfleet.cli.process.web",
        "Show the fleet of a hub in a browser.",
    ),
    "work": CommandEntry(
        "knfleet.cli.work.work",
        "Show what became of works, and what a change of one would do.",
    ),
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; one that there is not is answered with the nearest."""
        name = args[0]
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from knfleet.view.suggestions import nearest

        like = nearest(name, COMMANDS)
        hint = f" Did you mean {like!r}?" if like else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; what fails is printed as a message, whichever command it was."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            from knfleet.cli.errors import is_ours, sentence

            if not is_ours(error):
                raise
            raise click.ClickException(sentence(error)) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list["CompletionItem"]:
        """Complete from the table, without importing anything."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name].help) for name in names]

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
