"""`knfleet plugin`: the credential plugins, for kubeconfigs and provider files."""

import click


@click.group()
def command() -> None:
    """Print a credential, as an exec plugin of kubectl and operators.

    \b
    The same are programs of their own, which start faster:
      secretreader-plugin, kubeconfig-secretreader-plugin
    """


@command.command()
def secretreader() -> None:
    """A token from the Secret that is named like the cluster."""
    from knfleet.plugins.secretreader import main

    main()


@command.command("kubeconfig-secretreader")
def kubeconfig_secretreader() -> None:
    """The user of a kubeconfig that a Secret holds."""
    from knfleet.plugins.kubeconfig_secretreader import main

    main()
