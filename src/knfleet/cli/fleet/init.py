"""`knfleet init`: make a cluster a hub."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from knfleet.cli.fleet.aws_options import aws_of, names_of, patterns_of
from knfleet.cli.fleet.fleet_options import (
    cluster_options,
    connection_of,
    gates_of,
    image_from,
    image_options,
    later_options,
    on_cluster,
    print_json,
    print_manifests,
    print_progress,
    quality_of,
    resource_options,
)
from knfleet.cli.output import explained
from knfleet.kube.errors import KubeError

if TYPE_CHECKING:
    from knfleet.install.deployments import GrpcExposure, HubInstall
    from knfleet.kube.client.verbs import Client
    from knfleet.kube.endpoint import Connection
    from knfleet.workflows.join_token import JoinToken

DONE = """\
The multicluster hub control plane has been initialized successfully!

You can now register cluster(s) to the hub control plane. Log onto those cluster(s) and run the \
following command:

    {command}

Replace <cluster_name> with a cluster name of your choice. For example, cluster1.
"""
DRIVERS = ("csr", "grpc", "awsirsa")


@click.command()
@cluster_options
@click.option("--wait", is_flag=True, help="Wait until the hub is ready.")
@click.option("--force", is_flag=True, hidden=True)
@click.option("--dry-run", is_flag=True, help="Print what would be applied.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format."
)
@click.option(
    "--output-file", type=click.Path(path_type=Path), help="File for the objects that were applied."
)
@click.option(
    "--output-join-command-file",
    "join_file",
    type=click.Path(path_type=Path),
    help="File for the join command; it holds a token.",
)
@click.option(
    "--use-bootstrap-token",
    "by_token",
    is_flag=True,
    help="Create a bootstrap token instead of a ServiceAccount token.",
)
@click.option(
    "--registration-drivers",
    "drivers",
    default="csr",
    help="Registration drivers, as csr,grpc,awsirsa.",
)
@click.option(
    "--grpc-endpoint-type",
    "grpc_type",
    type=click.Choice(["hostname", "loadBalancer", "route"]),
    default=None,
    help="With grpc: how agents reach the gRPC server.",
)
@click.option(
    "--grpc-server", "grpc_host", default="", help="With grpc: host name of the gRPC server."
)
@click.option(
    "--auto-approved-grpc-identities",
    "grpc_approved",
    default="",
    help="With grpc: users whose clusters are accepted automatically, as a,b.",
)
@click.option("--hub-cluster-arn", "hub_arn", default="", help="With awsirsa: ARN of this cluster.")
@click.option(
    "--aws-resource-tags",
    "aws_tags",
    default="",
    help="With awsirsa: tags of what the hub makes in AWS, as a=b,c=d.",
)
@click.option(
    "--auto-approved-arn-patterns",
    "arn_patterns",
    multiple=True,
    help="With awsirsa: regular expression; clusters whose ARN matches are accepted automatically.",
)
@click.option(
    "--auto-approved-csr-identities",
    "approved",
    default="",
    help="Users whose clusters are accepted automatically, as a,b.",
)
@click.option("--feature-gates", "gates", default="", help="As ManagedClusterAutoApproval=true.")
@click.option(
    "--check-profile-use",
    is_flag=True,
    help="Require the permission to use a ClusterProfile from authors of custom resources.",
)
@click.option(
    "--agent-label-prefixes",
    "labels",
    default=None,
    help="Labels that agents may give their clusters, as a/,b/.",
)
@click.option(
    "--tunnel-endpoint",
    "tunnel",
    default="",
    metavar="HOST:PORT",
    help="How agents reach the hub's tunnel, or LoadBalancer; without it there is none.",
)
@click.option(
    "--tunnel-front",
    "front",
    default="",
    metavar="URL",
    help="How consumers of ClusterProfiles reach the tunnel; by its Service unless given.",
)
@click.option("--releases", default="", help="Source of Knative's release files for the pod.")
@click.option("--create-namespace/--no-create-namespace", default=True, hidden=True)
@click.option("--singleton", is_flag=True, hidden=True)
@later_options(
    "image-pull-credential-file",
    "bundle-version-overrides",
    "cluster-manager-values-file",
    "enable-sync-labels",
)
@image_options
@resource_options
@explained(KubeError)
def command(context: str | None, kubeconfig: Path | None, **options: Any) -> None:
    """Install a hub on a cluster, and print the join command.

    \b
    knfleet init --wait --context hub
    """
    plan = plan_of(options)
    connection = connection_of(kubeconfig, context)
    objects = objects_of(plan, connection)
    if options["dry_run"]:
        print_manifests(objects)
        return
    warn_about(connection.endpoint.server)

    async def work(client: "Client") -> "JoinToken":
        return await install(client, connection, objects, options)

    invitation = on_cluster(connection, work)
    write_files(options, objects, invitation)
    if options["output"] == "json":
        print_json(invitation.fields())
    else:
        click.echo(DONE.format(command=invitation.command()), nl=False)


def checked_endpoint(text: str) -> str:
    """The address of the tunnel for agents."""
    from knfleet.hub.tunnel.tunnel_endpoint import endpoint_problem

    if text and (problem := endpoint_problem(text)):
        raise click.UsageError(f"--tunnel-endpoint {text}: {problem}")
    return text


def checked_front(text: str, endpoint: str) -> str:
    """The address of the tunnel for consumers."""
    from knfleet.hub.tunnel.tunnel_endpoint import front_problem

    if text and not endpoint:
        raise click.UsageError("--tunnel-front needs --tunnel-endpoint")
    if text and (problem := front_problem(text)):
        raise click.UsageError(f"--tunnel-front {text}: {problem}")
    return text


def plan_of(options: dict[str, Any]) -> "HubInstall":
    """How the hub is to be installed, as the flags say."""
    from knfleet.api.operator import AUTO_APPROVAL_GATE
    from knfleet.install.deployments import HubInstall

    gates = gates_of(options["gates"])
    approved = names_of(options["approved"])
    for flag, names in (
        ("csr-identities", approved),
        ("grpc-identities", names_of(options["grpc_approved"])),
        ("arn-patterns", patterns_of(options["arn_patterns"])),
    ):
        if names and not dict(gates).get(AUTO_APPROVAL_GATE):
            raise click.UsageError(
                f"--auto-approved-{flag} needs --feature-gates {AUTO_APPROVAL_GATE}=true"
            )
    return HubInstall(
        image=image_from(options["registry"], options["image"], options["version"]),
        quality=quality_of(options["qos"], options["limits"], options["requests"]),
        auto_approved=approved,
        feature_gates=gates,
        grpc=exposure_of(options),
        aws=aws_of(options),
        has_csr="csr" in names_of(options["drivers"]),
        releases=options["releases"],
        check_profile_use=options["check_profile_use"],
        agent_labels=label_prefixes(options["labels"]),
        tunnel_endpoint=checked_endpoint(options["tunnel"]),
        tunnel_front=checked_front(options["front"], options["tunnel"]),
    )


def exposure_of(options: dict[str, Any]) -> "GrpcExposure | None":
    """How agents reach the gRPC server, if clusters may register so."""
    from knfleet.install.deployments import GrpcExposure

    drivers = names_of(options["drivers"])
    for driver in drivers:
        if driver not in DRIVERS:
            known = f"there is no such driver; use {', '.join(DRIVERS)}"
            raise click.UsageError(f"--registration-drivers {driver}: {known}")
    if not {"csr", "awsirsa"}.intersection(drivers):
        raise click.UsageError(
            f"--registration-drivers {options['drivers']}: csr or awsirsa must be one"
        )
    host: str = options["grpc_host"]
    if "grpc" not in drivers:
        if host or options["grpc_type"] or options["grpc_approved"]:
            raise click.UsageError("flags of gRPC need --registration-drivers csr,grpc")
        return None
    kind: str = options["grpc_type"] or ("hostname" if host else "loadBalancer")
    if kind in ("hostname", "route") and not host:
        raise click.UsageError(
            f"--grpc-endpoint-type {kind} needs --grpc-server with the host name of the server"
        )
    return GrpcExposure(kind, host, names_of(options["grpc_approved"]))


def label_prefixes(text: str | None) -> tuple[str, ...]:
    """The prefixes of labels that agents may set: those named, or the usual ones."""
    from knfleet.api.cluster.managedcluster import AGENT_LABELS

    if text is None:
        return AGENT_LABELS
    prefixes = tuple(each for each in text.split(",") if each)
    for each in prefixes:
        if not re.fullmatch(r"[A-Za-z0-9][-A-Za-z0-9._]*(/[-A-Za-z0-9._]*)?", each):
            raise click.UsageError(
                f"--agent-label-prefixes {each}: no label begins so; write example.com/ or name"
            )
    return prefixes


def objects_of(plan: "HubInstall", connection: "Connection") -> list[dict[str, Any]]:
    """Everything that makes a cluster a hub."""
    from knfleet.install.deployments import cluster_manager, hub_deployment
    from knfleet.install.hub_manifests import hub_objects
    from knfleet.workflows.join_token import info_objects

    return [
        *hub_objects(plan),
        *info_objects(connection.endpoint),
        cluster_manager(plan),
        hub_deployment(plan),
    ]


def warn_about(server: str) -> None:
    """Tell when other machines will not reach the hub at its address."""
    from urllib.parse import urlsplit

    from knfleet.kube.auth.kubeconfig_entries import is_loopback

    if is_loopback(urlsplit(server).hostname or ""):
        print_progress(
            f"Note: {server} is reached from this machine only; clusters elsewhere need another."
        )


async def install(
    client: "Client",
    connection: "Connection",
    objects: list[dict[str, Any]],
    options: dict[str, Any],
) -> "JoinToken":
    """Apply everything, wait if asked to, and invite clusters."""
    from knfleet.api.meta import Key
    from knfleet.api.operator import (
        APPLIED,
        CLUSTER_MANAGER,
        CLUSTER_MANAGERS,
        HUB_REGISTRATION_DEGRADED,
        OPERATOR_NAMESPACE,
    )
    from knfleet.kube.client.verbs import Client
    from knfleet.workflows.join_token import invite
    from knfleet.workflows.object_lists import WaitTimeout, apply_all, available, wait_for_condition
    from knfleet.workflows.policy_enforcement import enforced

    applied = await apply_all(client, objects)
    print_progress(f"Applied {len(applied)} objects to {client.cluster}.")
    try:
        if options["wait"]:
            print_progress("Waiting for the hub to be ready ...")
            seconds = float(options["timeout"])
            wanted = {APPLIED: "True", HUB_REGISTRATION_DEGRADED: "False"}
            key = Key(OPERATOR_NAMESPACE, CLUSTER_MANAGER)
            await available(client, key, seconds=seconds)
            await wait_for_condition(
                client, CLUSTER_MANAGERS, CLUSTER_MANAGER, wanted, seconds=seconds
            )
        made = await invite(client, connection.endpoint, by_bootstrap_token=options["by_token"])
        async with Client(made.connection(connection)) as asking:
            await enforced(asking)
    except WaitTimeout as error:
        raise click.ClickException(str(error)) from error
    return made


def write_files(
    options: dict[str, Any], objects: list[dict[str, Any]], invitation: "JoinToken"
) -> None:
    """Write what was applied, and the command, where that was asked for."""
    from knfleet.cli.fleet.fleet_options import hidden
    from knfleet.kube.yaml import dump_all

    if options["output_file"]:
        options["output_file"].write_text(dump_all([hidden(each) for each in objects]))
    if options["join_file"]:
        path: Path = options["join_file"]
        path.touch(mode=0o600)
        path.write_text(invitation.command() + "\n")
