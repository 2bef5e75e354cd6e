"""What the commands about works share: clusters, files, and doing the same for each cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from knfleet.cli.fleet.fleet_options import print_progress

if TYPE_CHECKING:
    from knfleet.workflows.work.work_files import FileManifest

T = TypeVar("T")
Command = Callable[..., Any]


def clusters_option(*, required: bool) -> Callable[[Command], Command]:
    """The clusters that a command is about, by either of two flags."""
    return click.option(
        "--clusters",
        "--cluster",
        "clusters",
        multiple=True,
        required=required,
        metavar="NAME,…",
        help="Names of clusters, as c1,c2.",
    )


def file_options(command: Command) -> Command:
    """The flags that print_progress where objects come from."""
    options = (
        click.option(
            "-f",
            "--filename",
            "files",
            multiple=True,
            required=True,
            metavar="FILE",
            help="File or folder with objects; - reads standard input.",
        ),
        click.option("-R", "--recursive", is_flag=True, help="Read folders in folders, too."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def names_in(values: Sequence[str]) -> list[str]:
    """The names of a flag that may be given several times, each with commas; each name once."""
    return list(dict.fromkeys(name for each in values for name in each.split(",") if name))


def manifests_from(options: dict[str, Any]) -> "list[FileManifest]":
    """The objects that the flags name; what may be a mistake is reported."""
    from knfleet.workflows.work.work_files import notes, read_manifests

    found = read_manifests(options["files"], recursive=options["recursive"])
    for note in notes(found):
        print_progress(f"note: {note}")
    return found


async def for_each(
    clusters: Sequence[str], work: Callable[[str], Awaitable[T]]
) -> tuple[dict[str, T], list[str]]:
    """Do something for all clusters at once; what came of it, and what went wrong, by cluster."""
    from knfleet.cli.errors import sentence
    from knfleet.kube.errors import KubeError
    from knfleet.workflows.object_lists import WaitTimeout
    from knfleet.workflows.work.work_delivery import WorkError

    async def one(cluster: str) -> T | Exception:
        try:
            return await work(cluster)
        except (WorkError, WaitTimeout, KubeError) as error:
            return error

    answers = await asyncio.gather(*map(one, clusters))
    done: dict[str, T] = {}
    problems: list[str] = []
    for cluster, answer in zip(clusters, answers, strict=True):
        if isinstance(answer, Exception):
            problems.append(sentence(answer))
        else:
            done[cluster] = answer
    return done, problems


def failed(problems: Sequence[str]) -> None:
    """End the command with exit code 1 when something went wrong."""
    if problems:
        raise click.ClickException("\n".join(problems))
