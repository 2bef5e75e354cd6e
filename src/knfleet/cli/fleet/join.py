"""`knfleet join`: register a cluster with a hub."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.aws_options import roles_of
from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    gates_of,
    image_from,
    image_options,
    later_options,
    print_manifests,
    print_progress,
    quality_of,
    resource_options,
)
from knfleet.cli.output import explained
from knfleet.cli.process.agent import LEAST_ADDON_TOKEN_SECONDS
from knfleet.cli.process.agent_options import addon_auth_option, tunnel_options
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.agent.grpc.grpc_config import GrpcConfig
    from knfleet.install.agent_manifests import AgentInstall
    from knfleet.kube.client.verbs import Client
    from knfleet.kube.endpoint import Connection
    from knfleet.workflows.hub_discovery import HubReference

YEAR_SECONDS = 365 * 24 * 3600
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
DONE = """\
Please log onto the hub cluster and run the following command:

    knfleet accept --clusters {cluster}
"""


@click.command()
@cluster_options
@click.option(
    "--hub-token", "token", required=True, help="Token, as printed by `knfleet get token`."
)
@click.option("--hub-apiserver", "server", required=True, help="Address of the hub.")
@click.option("--cluster-name", "cluster", required=True, help="Name for this cluster.")
@click.option(
    "--hub-ca-hash", "ca_hash", default="", help="Pins of the hub's CA: no other is trusted."
)
@click.option("--ca-file", type=FILE, help="The hub's CA, when it does not publish one.")
@click.option("--wait", is_flag=True, help="Wait until the cluster is registered.")
@click.option("--dry-run", is_flag=True, help="Print what would be applied.")
@click.option(
    "--output-file", type=click.Path(path_type=Path), help="File for the objects that were applied."
)
@click.option(
    "--force-internal-endpoint-lookup",
    "internal",
    is_flag=True,
    help="Use the address that the hub publishes.",
)
@click.option("--force-internal-endpoint-lookup-managed", is_flag=True, hidden=True)
@click.option(
    "--mode",
    type=click.Choice(["default", "hosted"]),
    default="default",
    help="hosted: the agent runs on another cluster.",
)
@click.option("--managed-cluster-kubeconfig", "managed", type=FILE, help="With --mode hosted.")
@click.option("--singleton", is_flag=True, help="Accepted; the agent is always one pod.")
@click.option("--proxy-url", default="", help="Proxy for connections to the hub.")
@click.option("--proxy-ca-file", type=FILE, help="The proxy's CA.")
@tunnel_options
@click.option(
    "--external-server-url",
    "urls",
    multiple=True,
    help="Address at which the hub reaches the cluster.",
)
@click.option(
    "--client-cert-expiration-seconds",
    "lifetime",
    type=int,
    default=YEAR_SECONDS,
    help="Requested lifetime of the agent's certificates.",
)
@click.option(
    "--access-rights",
    "access_rights",
    type=FILE,
    envvar="KNFLEET_ACCESS_RIGHTS",
    help="What the hub may do, as `knfleet rights` prints it; when not given, install all releases"
    " of Knative that are known.",
)
@click.option("--klusterlet-annotation", "annotations", multiple=True, help="As name=value.")
@click.option(
    "--registration-auth", "auth", default="csr", help="Registration driver: csr, grpc or awsirsa."
)
@click.option("--hub-cluster-arn", "hub_arn", default="", help="With awsirsa: ARN of the hub.")
@click.option(
    "--managed-cluster-arn", "managed_arn", default="", help="With awsirsa: ARN of this cluster."
)
@click.option(
    "--grpc-server", default="", help="With grpc: host, or host and port, of the gRPC server."
)
@click.option("--grpc-ca-file", type=FILE, help="With grpc: the CA of the gRPC server.")
@addon_auth_option
@click.option(
    "--addon-token-expiration-seconds",
    "addon_token",
    type=click.IntRange(LEAST_ADDON_TOKEN_SECONDS),
    help="With token: how long tokens of add-ons' agents last; a year unless it is given.",
)
@click.option("--feature-gates", "gates", default="", help="As ClusterProperty=true.")
@click.option("--create-namespace/--no-create-namespace", default=True, hidden=True)
@later_options(
    "image-pull-credential-file",
    "bundle-version-overrides",
    "klusterlet-values-file",
    "enable-sync-labels",
)
@image_options
@resource_options
@explained(KubeError)
def command(context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Register this cluster with a hub.

    The command for your hub, with its token, is printed by `knfleet init` and
    `knfleet get token`.
    """
    check(options)
    connection = connection_of(kubeconfig, context)
    hub = asyncio.run(hub_of(options))
    plan = plan_of(options, hub, connection)
    objects = everything(plan)
    if options["dry_run"]:
        print_manifests(objects)
        return
    asyncio.run(install(connection, plan, hub, options))
    if options["output_file"]:
        from knfleet.cli.fleet.fleet_options import hidden
        from knfleet.kube.yaml import dump_all

        options["output_file"].write_text(dump_all([hidden(each) for each in objects]))
    click.echo(DONE.format(cluster=plan.cluster), nl=False)


def check(options: dict[str, Any]) -> None:
    """Refuse what cannot be, before anything is done."""
    from knfleet.agent.registration.cluster_names import new_name_problem

    if problem := new_name_problem(options["cluster"]):
        raise click.UsageError(f"--cluster-name {options['cluster']}: {problem}")
    auth = options["auth"]
    if auth not in ("csr", "grpc", "awsirsa"):
        raise click.UsageError(
            f"--registration-auth {auth}: there is no such way; use csr, grpc or awsirsa"
        )
    roles_of(auth, options["hub_arn"], options["managed_arn"])
    if auth == "grpc" and not (options["grpc_server"] and options["grpc_ca_file"]):
        raise click.UsageError("--registration-auth grpc needs --grpc-server and --grpc-ca-file")
    if auth != "grpc" and (options["grpc_server"] or options["grpc_ca_file"]):
        raise click.UsageError("--grpc-server and --grpc-ca-file need --registration-auth grpc")
    if options["addon_token"] and options["addon_auth"] != "token":
        raise click.UsageError(
            "--addon-token-expiration-seconds needs --addon-kubeclient-registration-auth token"
        )
    if (options["mode"] == "hosted") != bool(options["managed"]):
        raise click.UsageError("--mode hosted and --managed-cluster-kubeconfig go together")


async def hub_of(options: dict[str, Any]) -> "Connection":
    """The way to the hub; what is wrong with it ends the command."""
    from knfleet.workflows.grpc.grpc_discovery import GrpcUnusable, find_grpc, is_grpc, unverified

    wanted = wanted_of(options)
    try:
        if options["auth"] == "grpc":
            await find_grpc(grpc_config(options), options["token"], options["cluster"])
            return unverified(wanted)
        if await is_grpc(wanted.server):
            print_progress(
                f"Note: {wanted.server} is a gRPC server. The cluster registers when"
                " spec.registrationConfiguration.registrationDriver.authType of its Klusterlet is"
                " grpc."
            )
            options["is_grpc"] = True
            return unverified(wanted, needs_ca=True)
    except GrpcUnusable as error:
        raise click.ClickException(str(error)) from error
    return await reached(wanted)


def grpc_config(options: dict[str, Any]) -> "GrpcConfig":
    """Where the gRPC server is, as the flags say."""
    from knfleet.agent.grpc.grpc_config import GrpcConfig, target_of
    from knfleet.workflows.hub_discovery import HubUnusable, read_ca

    path: Path = options["grpc_ca_file"]
    try:
        ca = read_ca(path.read_bytes(), str(path))
    except HubUnusable as error:
        raise click.ClickException(str(error)) from error
    return GrpcConfig(target_of(options["grpc_server"], "--grpc-server"), ca, options["token"])


async def reached(wanted: "HubReference") -> "Connection":
    """The way to the hub; what is wrong with it ends the command."""
    from knfleet.workflows.hub_discovery import HubUnusable, find

    try:
        return await find(wanted)
    except HubUnusable as error:
        raise click.ClickException(str(error)) from error


def wanted_of(options: dict[str, Any]) -> "HubReference":
    """What the flags say about the hub."""
    from knfleet.workflows.hub_discovery import HubReference, HubUnusable, read_ca

    try:
        files = {
            flag: read_ca(options[flag].read_bytes(), str(options[flag]))
            for flag in ("ca_file", "proxy_ca_file")
            if options[flag]
        }
    except HubUnusable as error:
        raise click.ClickException(str(error)) from error
    return HubReference(
        options["server"],
        options["token"],
        files.get("ca_file"),
        options["ca_hash"],
        options["proxy_url"],
        files.get("proxy_ca_file", b""),
        options["internal"],
    )


def usual_urls(server: str, tunnel: str) -> tuple[str, ...]:
    """The addresses that the hub is given when none is named: none if it needs none."""
    return () if tunnel == "always" else (server,)


def plan_of(options: dict[str, Any], hub: "Connection", home: "Connection") -> "AgentInstall":
    """How the cluster is to be joined.

    By default, the hub reaches the cluster where this command does: the address
    that pods use is of no use elsewhere.
    """
    from knfleet.agent.registration.cluster_names import random_agent
    from knfleet.cli.process.agent import annotations, checked_services
    from knfleet.install.agent_manifests import AgentInstall
    from knfleet.kube.auth.kubeconfig import connect, parse
    from knfleet.kube.auth.kubeconfig_entries import EntryOrigin
    from knfleet.workflows.hub_discovery import bootstrap_kubeconfig

    place: dict[str, Any] = {}
    server = home.endpoint.server
    if options["mode"] == "hosted":
        content: bytes = options["managed"].read_bytes()
        # Without its folder: a pod has none of the files that it may name.
        server = connect(parse(content, EntryOrigin(str(options["managed"])))).endpoint.server
        name = f"klusterlet-hosted-{random_agent()}"
        place = {"klusterlet": name, "namespace": name, "managed_kubeconfig": content}
    if options["auth"] == "grpc":
        place |= {"auth_type": "grpc", "grpc_config": grpc_config(options).with_token()}
    if options["auth"] == "awsirsa":
        roles = roles_of("awsirsa", options["hub_arn"], options["managed_arn"])
        place |= {"auth_type": "awsirsa", "roles": roles}
    singleton = "Singleton" if options["singleton"] else "Default"
    return AgentInstall(
        cluster=options["cluster"],
        bootstrap=bootstrap_kubeconfig(hub.endpoint, options["token"]),
        image=image_from(options["registry"], options["image"], options["version"]),
        mode="Hosted" if options["mode"] == "hosted" else singleton,
        quality=quality_of(options["qos"], options["limits"], options["requests"]),
        annotations=annotations(",".join(options["annotations"])),
        lifetime_seconds=options["lifetime"],
        external_urls=options["urls"] or usual_urls(server, options["tunnel"]),
        feature_gates=gates_of(options["gates"]),
        addon_tokens=options["addon_auth"] == "token",
        addon_token_seconds=options["addon_token"] or 0,
        tunnel=options["tunnel"],
        tunnel_services=checked_services(options["services"]),
        **rights_from(options["access_rights"]),
        **place,
    )


def rights_from(file: Path | None) -> dict[str, Any]:
    """The rights in a file, if one is given."""
    from knfleet.install.access_manifests import UnusableRights, rights_in_manifests
    from knfleet.kube.yaml import load_all

    if file is None:
        return {}
    try:
        manifests = load_all(file.read_bytes(), source=str(file))
        return {"rights": rights_in_manifests(manifests)}
    except UnusableRights as error:
        raise click.ClickException(f"{file}: {error}") from error


def everything(plan: "AgentInstall") -> list[dict[str, Any]]:
    """All objects of a plan, wherever they go."""
    from knfleet.install.agent_manifests import home_objects, managed_objects

    return [*home_objects(plan), *(managed_objects(plan) if plan.mode == "Hosted" else [])]


async def install(
    connection: "Connection", plan: "AgentInstall", hub: "Connection", options: dict[str, Any]
) -> None:
    """Apply everything, and wait if asked to."""
    from knfleet.install.agent_manifests import home_objects, managed_objects
    from knfleet.kube.auth.kubeconfig import load
    from knfleet.kube.client.verbs import Client
    from knfleet.workflows.object_lists import apply_all
    from knfleet.workflows.spoke_access import without_foreign_roles

    if plan.mode == "Hosted":
        async with Client(load([options["managed"]])) as managed:
            await apply_all(managed, await without_foreign_roles(managed, managed_objects(plan)))
    async with Client(connection) as home:
        applied = await apply_all(home, await without_foreign_roles(home, home_objects(plan)))
        print_progress(f"Applied {len(applied)} objects to {home.cluster}.")
        if options["wait"]:
            await wait(home, plan, hub, options)


async def wait(
    home: "Client", plan: "AgentInstall", hub: "Connection", options: dict[str, Any]
) -> None:
    """Wait for the agent, and for the cluster to appear on a hub that can be asked from here."""
    from knfleet.agent.registration.drivers.registry import has_grpc
    from knfleet.api.meta import Key
    from knfleet.kube.client.verbs import Client
    from knfleet.workflows.grpc.grpc_discovery import grpc_client
    from knfleet.workflows.object_lists import WaitTimeout, available
    from knfleet.workflows.registration_wait import wait_for_registration

    seconds = float(options["timeout"])
    by_grpc = plan.auth_type == "grpc"
    try:
        if options.get("is_grpc") or (by_grpc and not has_grpc()):
            print_progress("Waiting for the agent ...")
            await available(home, Key(plan.namespace, plan.workload), seconds=seconds)
            return
        print_progress("Waiting for the agent, and for the cluster to appear on the hub ...")
        there = Client(hub)
        if by_grpc:
            there = await grpc_client(grpc_config(options), options["token"], plan.cluster)
        async with there:
            await wait_for_registration(home, there, plan, seconds=seconds)
    except WaitTimeout as error:
        raise click.ClickException(str(error)) from error
