"""`knfleet completion`: what a shell needs to complete commands, flags and names."""

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_KNFLEET_COMPLETE"
"""By this variable a shell asks for completions; click answers."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print what a shell needs to complete commands, flags and names.

    Names of clusters and custom resources come from the hub of the current context; a hub that
    does not answer within two seconds has none; KNFLEET_COMPLETION_SECONDS gives it more.

    \b
    bash: source <(knfleet completion bash)
    zsh:  source <(knfleet completion zsh)
    fish: knfleet completion fish | source
    """
    click.echo(script(shell))


def script(shell: str) -> str:
    """The script for a shell, which it reads when it starts."""
    from click.shell_completion import get_completion_class

    from knfleet.cli.main import knfleet

    found = get_completion_class(shell)
    assert found is not None, f"click completes for {SHELLS}"
    complete = found(knfleet, {}, "knfleet", VARIABLE)
    # Not `source()`, which runs the shell to see how old it is.
    return complete.source_template % complete.source_vars()
