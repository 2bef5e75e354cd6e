"""`knfleet web`: the fleet of a hub in a browser."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.fleet_options import connection_of
from knfleet.cli.output import explained
from knfleet.clusters.provider_file import ProviderFileError
from knfleet.kube.errors import KubeError
from knfleet.operator.settings import SettingError
from knfleet.release.errors import ReleaseError

if TYPE_CHECKING:
    from knfleet.release.releases import Releases
    from knfleet.web.server.settings import WebSettings


@click.command()
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Path of the kubeconfig.")
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen; port 8787 when none is given, 0 for any. In a pod, a port alone is"
    " listened on at all addresses.",
)
@click.option("--login", is_flag=True, help="Have people log in with tokens of their own.")
@click.option("--web-actions", "actions", is_flag=True, help="Allow retry, pause and upgrade.")
@click.option(
    "--tls-cert-file", "certificate", type=click.Path(path_type=Path), help="Its certificate."
)
@click.option(
    "--tls-private-key-file",
    "key",
    type=click.Path(path_type=Path),
    help="TLS key of the dashboard.",
)
@click.option("--insecure-http", "plain", is_flag=True, help="Serve HTTP, behind a proxy with TLS.")
@click.option("--web-name", "names", multiple=True, help="Host name of the dashboard.")
@click.option("--namespace", "-n", "namespaces", multiple=True, help="Namespace to read.")
@click.option(
    "--clusterprofile-provider-file",
    "provider_file",
    type=click.Path(path_type=Path),
    help="Provider file for access to clusters; without it, knfleet's own plugins.",
)
@click.option("--releases", "origin", help="Release files: a folder, an archive, or go.")
@click.option(
    "--url-file",
    type=click.Path(path_type=Path),
    help="Write the address into a file of the owner's, instead of printing it.",
)
@explained(KubeError, SettingError, ProviderFileError, ReleaseError)
def command(kubeconfig: Path | None, context: str | None, **options: Any) -> None:
    """Show the fleet of a hub in a browser.

    Serves a dashboard on this machine, which shows what the kubeconfig may see, to clients with the
    address that is printed. With --login, or on an address that is not loopback, users log in
    with tokens, and each sees what they may read.
    """
    from functools import partial

    from knfleet.cli.process.operator import start
    from knfleet.runtime import logs
    from knfleet.view.target_access import providers_for
    from knfleet.web.server.main import StandaloneDashboard, build
    from knfleet.web.server.settings import check_free

    logs.configure("warning")
    if options["address"].startswith(":"):
        options["address"] = f"[{host_of_port()}]{options['address']}"
    beside = StandaloneDashboard(
        connection=connection_of(kubeconfig, context),
        settings=settings_of(options),
        providers=providers_for(options["provider_file"], kubeconfig, context),
        releases=releases_of(options["origin"]),
        namespaces=options["namespaces"],
        ready=partial(write_url, options["url_file"]),
    )
    check_free(beside.settings)
    start(partial(build, beside=beside))


def host_of_port() -> str:
    """Where a port alone is listened on: in a pod at all addresses of the pod's family.

    Requests through `kubectl port-forward` come to the pod's loopback address.
    """
    import os

    from knfleet.runtime.http.listen_address import bind_host

    is_version_6 = ":" in os.environ.get("POD_IP", "")
    return bind_host() or ("::" if is_version_6 else "0.0.0.0")  # noqa: S104 - a pod's own


def settings_of(options: dict[str, Any]) -> "WebSettings":
    """How the flags want it served; raises `SettingError` for ways that are refused."""
    from knfleet.web.server.settings import WebSettings, check, is_loopback, parse_address

    host, port = parse_address(options["address"])
    found = WebSettings(
        host=host,
        port=port,
        login=options["login"] or not is_loopback(host),
        actions=options["actions"],
        certificate=options["certificate"],
        key=options["key"],
        plain=options["plain"],
        names=options["names"],
    )
    check(found)
    return found


def releases_of(origin: str | None) -> "Releases | None":
    """The release files, if there are any at hand."""
    from knfleet.cli.process.operator import release_folder
    from knfleet.release.parsed_cache import ParsedCache
    from knfleet.release.releases import Releases
    from knfleet.release.source.sources import cache_folder

    try:
        folder = release_folder(origin)
    except ReleaseError:
        if origin:
            raise
        return None
    return Releases(folder, cache=ParsedCache(cache_folder() / "manifests"))


def write_url(url_file: Path | None, url: str) -> None:
    """Say where the dashboard is."""
    if url_file is None:
        click.echo(url)
        return
    from knfleet.dev.dev_folder import write_private

    write_private(url_file, f"{url}\n")
    click.echo(f"the address is in {url_file}")
