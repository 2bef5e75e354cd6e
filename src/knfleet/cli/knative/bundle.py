"""`knfleet bundle`: Knative's release files on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from knfleet.cli.output import explained, progress, table
from knfleet.oci.errors import ImageError
from knfleet.release.errors import ReleaseError

if TYPE_CHECKING:
    from knfleet.release.source.signature_keys import PinnedKeys

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Folder with the release files; by default KO_DATA_PATH, or the pulled files.",
)
lock_option = click.option(
    "--lock", "lock_file", type=click.Path(path_type=Path), help="Lock file to compare with."
)


def pinned(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say whose signatures are believed."""
    from knfleet.release.signers import IDENTITY, ISSUER

    options = [
        click.option(
            "--key",
            "key_files",
            multiple=True,
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Require signatures by this public key of cosign, or by certificates of this"
            " authority; more than once for more.",
        ),
        click.option(
            "--identity",
            default=IDENTITY,
            show_default=True,
            help="Whom certificates of an authority must be for.",
        ),
        click.option(
            "--issuer",
            default=ISSUER,
            show_default=True,
            help="Who must have confirmed the identity.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def pinned_keys_of(key_files: tuple[Path, ...], identity: str, issuer: str) -> "PinnedKeys | None":
    """The keys that the options pin; a usage error for options that would count for nothing."""
    from knfleet.release.source.signature_keys import pinned_keys

    given = click.get_current_context().get_parameter_source
    for name in ("identity", "issuer"):
        if not key_files and given(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name} is compared with certificates of an authority; add --key FILE with the"
                " certificates of this authority"
            )
    return pinned_keys(key_files, identity, issuer)


def chosen_folder(directory: Path | None) -> Path:
    """The folder that the options name."""
    from knfleet.release.source.sources import default_folder

    folder = directory or default_folder()
    if not folder.is_dir():
        raise ReleaseError(f"{folder}: there is no such folder; fill it with `knfleet bundle pull`")
    return folder


@click.group()
def command() -> None:
    """Download, list and verify Knative's release files."""


@command.command()
@click.option(
    "--from",
    "origin",
    default="go",
    show_default=True,
    help="A folder, an archive, go[:MODULE@VERSION], releases:VERSION,… (over HTTPS), or"
    " layout:PATH, which `knfleet airgap save` wrote.",
)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    help="Target folder, instead of one in your data folder.",
)
@click.option(
    "--lock",
    "lock_file",
    type=click.Path(path_type=Path),
    help="Lock file that the files must match; written if it does not exist.",
)
@pinned
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless it fails.")
@explained(ReleaseError, ImageError)
def pull(
    origin: str,
    target: Path | None,
    lock_file: Path | None,
    key_files: tuple[Path, ...],
    identity: str,
    issuer: str,
    quiet: bool,
) -> None:
    """Download release files and lock them.

    The checksums that releases publish are compared, and with --key their signatures.

    \b
    knfleet bundle pull
    knfleet bundle pull --from releases:1.22.1,1.23.0 --to ./bundle
    knfleet bundle pull --from releases:1.23.0 --key cosign.pub
    knfleet bundle pull --from bundle.tar.gz --lock bundle.lock
    """
    import asyncio

    from knfleet.release.source import pull as pulling
    from knfleet.release.source.sources import bundle_folder, source
    from knfleet.workflows.airgap.release_archive import PREFIX, LayoutSource

    keys = pinned_keys_of(key_files, identity, issuer)
    folder = target or bundle_folder()
    is_layout = origin.startswith(PREFIX)
    chosen = LayoutSource(Path(origin.removeprefix(PREFIX))) if is_layout else source(origin)
    with progress(quiet=quiet) as reporter:
        if reporter:
            reporter.report(f"getting release files from {chosen}")
        lock = asyncio.run(pulling.pull(chosen, folder, lock_file, keys))
        if reporter:
            reporter.report(f"{len(lock.files)} files in {folder}")


@command.command(name="list")
@directory_option
@click.option(
    "-o", "output", type=click.Choice(["table", "json"]), default="table", help="Output format."
)
@explained(ReleaseError)
def list_command(directory: Path | None, output: str) -> None:
    """List the available versions."""
    import msgspec

    from knfleet.release.source.pull import contents

    found = contents(chosen_folder(directory))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
        return
    rows = [[one.section, one.version, ",".join(one.parts), str(one.files)] for one in found]
    click.echo(table(["SECTION", "VERSION", "PARTS", "FILES"], rows))


@command.command()
@directory_option
@lock_option
@pinned
@explained(ReleaseError)
def verify(
    directory: Path | None,
    lock_file: Path | None,
    key_files: tuple[Path, ...],
    identity: str,
    issuer: str,
) -> None:
    """Check that the files are complete, readable, and as they were locked and published.

    Says for each release what its publisher says of the files; nothing is downloaded.
    """
    from knfleet.release.lock import LOCK, PUBLISHED, bundle_files, lock_beside, read_lock
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.source.published_checksums import proofs
    from knfleet.release.source.pull import problems
    from knfleet.release.source.sources import cache_folder

    keys = pinned_keys_of(key_files, identity, issuer)
    folder = chosen_folder(directory)
    lock = read_lock(lock_file) if lock_file else lock_beside(folder)
    found = problems(folder, ParsedCache(cache_folder() / "manifests"), lock)
    published = proofs(folder, keys) if keys or (folder / PUBLISHED).is_dir() else []
    found += [problem for each in published for problem in each.problems]
    for problem in found:
        click.echo(problem, err=True)
    if found:
        raise click.ClickException(
            f"{len(found)} problems in {folder}; get the files again with `knfleet bundle pull`"
        )
    files = len(bundle_files(folder))
    locked = lock is not None or (folder / LOCK).is_file()
    click.echo(f"{files} files are valid{'' if locked else ', and not locked'}")
    for each in published:
        click.echo(str(each))
    if not published and lock is not None and lock.source.startswith("go:"):
        click.echo(f"{lock.source}: checked by the go command when they were pulled")
