"""What the commands of a fleet share: which cluster, how long to wait, how to print."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from knfleet.cli.errors import remember

if TYPE_CHECKING:
    from knfleet.api.meta import Resource
    from knfleet.kube.client.verbs import Client
    from knfleet.kube.endpoint import Connection

T = TypeVar("T")
Command = Callable[..., Any]
LATER_FLAGS = {
    "image-pull-credential-file": (
        "pull secrets are not made yet; add yours to the ServiceAccount, or give --image-registry"
    ),
    "bundle-version-overrides": "there is one image; choose it by --bundle-version or --image",
    "cluster-manager-values-file": "there is no chart behind this; use the flags",
    "klusterlet-values-file": "there is no chart behind this; use the flags",
    "enable-sync-labels": "labels are not copied to what is installed yet",
}
"""Flags that are known, and why they cannot be used yet."""


class Seconds(click.ParamType[int]):
    """A time: seconds, or as Go writes it."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Whole seconds, one at least."""
        from knfleet.operator.settings import SettingError, duration_seconds

        text = str(value)
        try:
            seconds = round(duration_seconds(f"{text}s" if text.isdecimal() else text))
        except SettingError:
            self.fail(f"{text!r} is no time; write seconds, or as 90s or 5m", param, ctx)
        if seconds < 1:
            self.fail(f"{text} is too short; 1s is the least", param, ctx)
        return seconds


def cluster_options(command: Command) -> Command:
    """The flags that every command has."""
    options = (
        click.option("--context", help="Context of the kubeconfig."),
        click.option(
            "--kubeconfig", type=click.Path(path_type=Path), help="Path of the kubeconfig."
        ),
        click.option(
            "--timeout", type=Seconds(), default=300, help="Timeout, in seconds or as 5m."
        ),
        click.option("--v", "verbosity", type=int, default=0, hidden=True),
    )
    for option in reversed(options):
        command = option(command)
    return command


list_output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "tree", "json", "yaml"]),
    default="table",
    help="How to print.",
)


def resource_options(command: Command) -> Command:
    """The flags that say how much our pods may use."""
    classes = click.Choice(["Default", "BestEffort", "ResourceRequirement"])
    options = (
        click.option(
            "--resource-qos-class",
            "qos",
            type=classes,
            default="Default",
            help="Quality of service class of the pod.",
        ),
        click.option("--resource-limits", "limits", default="", help="As cpu=1,memory=1Gi."),
        click.option("--resource-requests", "requests", default="", help="As cpu=1,memory=1Gi."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def image_options(command: Command) -> Command:
    """The flags that say which image is installed."""
    options = (
        click.option("--image-registry", "registry", default="", help="Registry of the image."),
        click.option("--image", default="", help="Image, instead of its registry."),
        click.option("--bundle-version", "version", default="default", help="Or latest, or x.y.z."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def later_options(*names: str) -> Callable[[Command], Command]:
    """Flags of what comes later: they are known, and refused with a sentence."""

    def refuse(_: click.Context, parameter: click.Parameter, value: object) -> object:
        if value:
            flag = parameter.opts[0]
            raise click.UsageError(f"{flag}: {reason_of(flag)}")
        return value

    def decorate(command: Command) -> Command:
        for name in names:
            option = click.option(
                f"--{name}",
                is_flag=False,
                flag_value="true",
                hidden=True,
                expose_value=False,
                callback=refuse,
            )
            command = option(command)
        return command

    return decorate


def reason_of(flag: str) -> str:
    """Why a flag is not supported yet."""
    return LATER_FLAGS[flag.removeprefix("--")]


def connection_of(kubeconfig: Path | None, context: str | None) -> "Connection":
    """The cluster that the flags name, else the current one; it is called like its context."""
    from msgspec.structs import replace

    from knfleet.api.meta import ClusterName
    from knfleet.kube.auth.in_cluster import default_connection
    from knfleet.kube.auth.kubeconfig import load

    found = load([kubeconfig], context) if kubeconfig else default_connection(context)
    remember(found, kubeconfig, context)
    return replace(found, cluster=ClusterName(context)) if context else found


def on_cluster(connection: "Connection", work: "Callable[[Client], Awaitable[T]]") -> T:
    """Do something with a client of a cluster."""
    from knfleet.kube.client.verbs import Client

    async def run() -> T:
        async with Client(connection) as client:
            return await work(client)

    return asyncio.run(run())


async def like(client: "Client", resource: "Resource", name: str) -> str:
    """What to say of a name that there is not: which one may have been meant; best effort."""
    from knfleet.kube.errors import KubeError
    from knfleet.view.suggestions import meant

    try:
        listing = await client.list(resource, metadata_only=True)
    except KubeError:
        return "see which there are"
    return meant(name, [each["metadata"]["name"] for each in listing.items])


async def known(client: "Client", resource: "Resource", name: str) -> None:
    """Make sure that there is something of a name; else say which name may have been meant."""
    from knfleet.kube.errors import NotFound

    try:
        await client.get(resource, name)
    except NotFound as error:
        if "not found" not in error.message:
            raise
        hint = await like(client, resource, name)
        text = f"{resource.kind} {name} does not exist; {hint}"
        raise click.ClickException(text) from error


def amounts(text: str, flag: str) -> dict[str, str]:
    """Resources as `cpu=1,memory=1Gi`."""
    found: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, mark, value = pair.partition("=")
        if not mark or not name or not value:
            raise click.UsageError(f"{flag} {pair}: write it as cpu=500m,memory=512Mi")
        found[name.strip()] = value.strip()
    return found


def quality_of(qos: Any, limits: str, requests: str) -> Any:
    """What the resource flags ask for."""
    from knfleet.install.deployments import PodProfile

    if qos != "ResourceRequirement" and (limits or requests):
        raise click.UsageError(
            "--resource-limits and --resource-requests need"
            " --resource-qos-class ResourceRequirement"
        )
    return PodProfile(
        qos, amounts(limits, "--resource-limits"), amounts(requests, "--resource-requests")
    )


def gates_of(text: str) -> tuple[tuple[str, bool], ...]:
    """Features as `A=true,B=false`."""
    found: list[tuple[str, bool]] = []
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        if value not in ("true", "false"):
            raise click.UsageError(f"--feature-gates {pair}: write it as {name}=true")
        found.append((name, value == "true"))
    return tuple(found)


def image_from(registry: str, image: str, version: str) -> str:
    """The image that the flags name."""
    from knfleet.install.deployments import image_of

    return image or image_of(registry, version)


def print_progress(text: str) -> None:
    """A line for people, beside what is printed for programs."""
    click.echo(text, err=True)


def print_json(value: object) -> None:
    """Print for programs."""
    import msgspec

    encoded = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(encoded.decode() + "\n")


def print_yaml(value: object) -> None:
    """Print for programs that rather read YAML."""
    import msgspec

    from knfleet.kube.yaml import dump_all

    click.echo(dump_all([msgspec.json.decode(msgspec.json.encode(value))]), nl=False)


def print_manifests(objects: list[dict[str, Any]]) -> None:
    """Print what would be applied, without what is secret in it."""
    from knfleet.kube.yaml import dump_all

    click.echo(dump_all([hidden(each) for each in objects]), nl=False)


def hidden(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest whose secrets are not shown."""
    if manifest.get("kind") != "Secret":
        return manifest
    return {**manifest, "data": dict.fromkeys(manifest.get("data") or {}, "")}
