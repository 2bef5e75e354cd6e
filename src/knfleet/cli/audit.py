"""`knfleet audit`: the record of all writes of a hub, an operator or an agent."""

from pathlib import Path

import click


@click.group()
def command() -> None:
    """Check the record of all writes of a hub, an operator or an agent."""


@command.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--last", "last", metavar="HASH", help="Hash that the last record must have.")
def verify(path: Path, last: str | None) -> None:
    """Check that no record was changed, removed or added, in a file and those before it.

    Older files are found by their names: PATH.1, PATH.2 and so on. That records are missing at the
    end is found by --last, with the hash that the process has logged, or that this command printed
    before.
    """
    from knfleet.runtime.audit.audit_file import rotated
    from knfleet.runtime.audit.hash_chain import START, check

    paths = rotated(path)
    if not paths:
        raise click.ClickException(
            f"{path}: there is no such file; name the one in KNFLEET_AUDIT_FILE of the process"
        )
    report = check(paths)
    if report.problem is not None:
        raise click.ClickException(
            f"{report.problem}; the {report.last.number - report.first.number} records before it"
            " are as they were written"
        )
    if last and last != report.last.hash:
        raise click.ClickException(
            f"{path}: the last record has the hash {report.last.hash}, not {last}: records are"
            " missing at the end, or came later"
        )
    count = report.last.number - report.first.number
    click.echo(f"{count} records in {len(paths)} files are as they were written")
    if report.first.hash != START:
        click.echo(f"records up to {report.first.number} were removed by rotation")
    click.echo(f"last hash: {report.last.hash}")
