"""`knfleet dev`: real control planes on this machine."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from knfleet.cli.output import explained, progress, table
from knfleet.dev.errors import DevError

if TYPE_CHECKING:
    from knfleet.dev.dev_folder import DevFolder
    from knfleet.dev.dev_status import DevStatus


def chosen_folder(directory: Path | None, name: str) -> "DevFolder":
    """The folder that the options name."""
    import platformdirs

    from knfleet.dev.dev_folder import DevFolder

    if not name or "/" in name or name.startswith("."):
        raise DevError(f"--name {name!r} cannot be a folder's name; use letters and digits")
    if directory is not None:
        return DevFolder(directory.absolute())
    return DevFolder(platformdirs.user_data_path("knfleet") / "dev" / name)


def existing_folder(directory: Path | None, name: str) -> "DevFolder":
    """The folder that the options name, which must have clusters in it."""
    folder = chosen_folder(directory, name)
    if not folder.state_file.exists():
        raise DevError(f"there are no dev clusters in {folder.root}; start some: knfleet dev up")
    return folder


directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    envvar="KNFLEET_DEV_DIR",
    help="Folder for all files, instead of one in your data folder.",
)
name_option = click.option(
    "--name",
    default="default",
    show_default=True,
    help="Name of the set of clusters, if several run.",
)


@click.group()
def command() -> None:
    """Run real control planes on this machine.

    etcd, kube-apiserver and kube-controller-manager are the real ones; pods become ready without
    being run, except those of our own image, which run as processes.
    """


@command.command()
@click.option(
    "--spokes",
    type=click.IntRange(0, 60),
    default=0,
    show_default=True,
    help="Number of clusters beside the hub; a higher number than before adds some.",
)
@click.option("--port-range", default="20000-29999", show_default=True, help="Ports to use.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless it fails.")
@name_option
@directory_option
@explained(DevError)
def up(spokes: int, port_range: str, quiet: bool, name: str, directory: Path | None) -> None:
    """Start a hub and spokes, or repair and extend existing ones."""
    from knfleet.dev import ports
    from knfleet.dev.dev_clusters import DevClusters

    folder = chosen_folder(directory, name)
    wanted = ports.parse_range(port_range)
    with progress(quiet=quiet) as listener:
        ground = DevClusters(folder, progress=listener, port_range=wanted)
        state = asyncio.run(ground.up(spokes))
    if not quiet:
        names = ", ".join(cluster.name for cluster in state.clusters)
        click.echo(f"ready: {names}")
        click.echo(f"try: kubectl --kubeconfig {folder.kubeconfig} --context hub get namespaces")


@command.command()
@name_option
@directory_option
@explained(DevError)
def down(name: str, directory: Path | None) -> None:
    """Stop all clusters and remove their files."""
    from knfleet.dev.dev_clusters import DevClusters

    folder = chosen_folder(directory, name)
    if DevClusters(folder).down():
        click.echo(f"removed the clusters in {folder.root}")
    else:
        click.echo(f"nothing to do: there are no clusters in {folder.root}")


@command.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Output format.",
)
@name_option
@directory_option
@explained(DevError)
def status(output: str, name: str, directory: Path | None) -> None:
    """Show the status of each cluster; exit code 1 when one is not healthy."""
    import msgspec

    from knfleet.dev.dev_status import status as read_status

    found = asyncio.run(read_status(existing_folder(directory, name)))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        click.echo(status_table(found))
    if not found.ready:
        click.echo("some components are not healthy; repair them with: knfleet dev up", err=True)
        sys.exit(1)


def status_table(found: "DevStatus") -> str:
    """The status for people."""
    rows = [
        [
            each.name,
            "ready" if each.ready else "NOT READY",
            each.version or "-",
            each.url,
            f"{each.rss_bytes >> 20} MB",
            each.problem or "-",
        ]
        for each in found.clusters
    ]
    headings = ["CLUSTER", "STATE", "VERSION", "URL", "MEMORY", "PROBLEM"]
    etcd = found.etcd
    return f"{table(headings, rows)}\netcd is {etcd.state}, {etcd.rss_bytes >> 20} MB"


@command.command()
@click.argument("cluster", required=False)
@name_option
@directory_option
@explained(DevError)
def kubeconfig(cluster: str | None, name: str, directory: Path | None) -> None:
    """Print the path of the kubeconfig: of all clusters, or of one."""
    folder = existing_folder(directory, name)
    if cluster is None:
        click.echo(folder.kubeconfig)
        return
    click.echo(folder.cluster(known_cluster(folder, cluster)) / "admin.kubeconfig")


def known_cluster(folder: "DevFolder", cluster: str) -> str:
    """The cluster's name, if there is such a cluster."""
    names = [each.name for each in folder.read().clusters]
    if cluster not in names:
        raise DevError(f"there is no cluster {cluster!r}; there are {', '.join(names)}")
    return cluster


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("cluster")
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@name_option
@directory_option
@explained(DevError)
def enter(cluster: str, words: tuple[str, ...], name: str, directory: Path | None) -> None:
    """Run a command in the network of a cluster.

    Only needed for clusters that nothing can connect to, such as one of `knfleet demo --keep`.
    """
    from knfleet.dev.dev_clusters import DevClusters

    folder = existing_folder(directory, name)
    entering = DevClusters(folder).entering(known_cluster(folder, cluster))
    sys.exit(subprocess.run([*entering, *words], check=False).returncode)


@command.command()
@click.argument("cluster")
@click.argument("component", required=False)
@click.option("-f", "--follow", is_flag=True, help="Follow the log.")
@click.option("--tail", default=200, show_default=True, help="Number of lines to start with.")
@name_option
@directory_option
@explained(DevError)
def logs(
    cluster: str, component: str | None, follow: bool, tail: int, name: str, directory: Path | None
) -> None:
    """Print a component's log: kube-apiserver, kube-controller-manager, node; or etcd."""
    from knfleet.dev import control_plane

    folder = existing_folder(directory, name)
    if cluster == control_plane.ETCD:
        path = folder.log(control_plane.ETCD)
    else:
        known_cluster(folder, cluster)
        if component not in control_plane.COMPONENTS:
            raise DevError(f"name a component of {cluster}: {', '.join(control_plane.COMPONENTS)}")
        path = folder.log(control_plane.process_name(cluster, component))
    if not path.exists():
        raise DevError(f"{path} is not there; start the clusters with: knfleet dev up")
    arguments = ["tail", f"--lines={tail}", *(["--follow"] if follow else []), str(path)]
    sys.exit(subprocess.run(arguments, check=False).returncode)


@command.command()
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but progress.")
@explained(DevError)
def binaries(quiet: bool) -> None:
    """Find or build the servers, and show where they come from."""
    from knfleet.dev.binaries.locate import ensure
    from knfleet.dev.progress_reporter import SilentProgress

    with progress() as listener:
        tools = asyncio.run(ensure(listener or SilentProgress()))
    if not quiet:
        rows = [[each.name, each.version, each.origin, str(each.path)] for each in tools.values()]
        click.echo(table(["TOOL", "VERSION", "FROM", "PATH"], rows))


namespace_option = click.option(
    "-n", "--namespace", default="default", show_default=True, help="Namespace of the workload."
)


@command.command()
@click.argument("cluster")
@click.argument("workload", metavar="KIND/NAME")
@click.option("--break", "broken", metavar="REASON", help="Broken, e.g. CrashLoopBackOff.")
@click.option("--slow", metavar="DURATION", help="Ready only after so long, e.g. 30s.")
@namespace_option
@name_option
@directory_option
@explained(DevError)
def hold(
    cluster: str,
    workload: str,
    broken: str | None,
    slow: str | None,
    namespace: str,
    name: str,
    directory: Path | None,
) -> None:
    """Keep a workload's pods from becoming ready, break them, or slow them down."""
    from knfleet.dev.dev_clusters import DevClusters
    from knfleet.dev.hold import HeldWorkload, annotate, wanted

    folder = existing_folder(directory, name)
    target = HeldWorkload.parse(workload, namespace)
    annotations = wanted(broken=broken or "", slow=slow or "")
    connection = DevClusters(folder).connection(known_cluster(folder, cluster))
    asyncio.run(annotate(connection, target, annotations))
    state = f"broken: {broken}" if broken else f"slow: {slow}" if slow else "held"
    click.echo(
        f"{target} on {cluster} is {state}; knfleet dev release {cluster} {workload} ends it"
    )


@command.command()
@click.argument("cluster")
@click.argument("workload", metavar="KIND/NAME")
@namespace_option
@name_option
@directory_option
@explained(DevError)
def release(cluster: str, workload: str, namespace: str, name: str, directory: Path | None) -> None:
    """Undo `hold` for a workload."""
    from knfleet.dev.dev_clusters import DevClusters
    from knfleet.dev.hold import RELEASED, HeldWorkload, annotate

    folder = existing_folder(directory, name)
    target = HeldWorkload.parse(workload, namespace)
    connection = DevClusters(folder).connection(known_cluster(folder, cluster))
    asyncio.run(annotate(connection, target, RELEASED))
    click.echo(f"{target} on {cluster} is released")
