"""The hub of Open Cluster Management as processes: its own CRDs and its four controllers."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from msgspec import Struct

from knfleet.api.certificate_requests import CERTIFICATES_GROUP
from knfleet.api.cluster.managedcluster import GROUP as CLUSTER_GROUP
from knfleet.api.core import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
)
from knfleet.api.meta import Object
from knfleet.api.operator import BOOTSTRAP_ACCOUNT, HUB_NAMESPACE, OPERATOR_NAMESPACE
from knfleet.api.rbac_rules import READ, cluster_role, rule
from knfleet.dev.binaries.build import modules
from knfleet.dev.progress_reporter import ProgressReporter
from knfleet.install.hub_manifests import bootstrap_binding, named
from knfleet.kube.client.verbs import Client
from knfleet.kube.yaml import load_all
from testbed.clusters import Lent
from testbed.go_build import built
from testbed.peers.leashed import leashed, reserved_port
from testbed.peers.ocm import PACKAGES
from testbed.waiting import until

API_MODULE = "open-cluster-management.io/api"
HUB_FOLDERS = (
    "cluster/v1",
    "cluster/v1beta1",
    "cluster/v1beta2",
    "cluster/v1alpha1",
    "work/v1",
    "work/v1alpha1",
    "addon/v1beta1",
    "addon/v1alpha1",
)
BOOTSTRAP = [
    rule("", ["configmaps"], ["get"]),
    rule(CERTIFICATES_GROUP, ["certificatesigningrequests"], ["create", *READ]),
    rule(CLUSTER_GROUP, ["managedclusters"], ["create", *READ]),
    rule(CLUSTER_GROUP, ["managedclustersets/join"], ["create"]),
]
"""What Open Cluster Management lets a cluster do that asks to join."""
SPOKE_KINDS = frozenset({"AppliedManifestWork", "ClusterClaim"})


class OcmHub(Struct, frozen=True):
    """The controllers of the hub."""

    registration: Path
    placement: Path
    work: Path
    addon: Path


CONTROLLERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "registration": ("controller", ("--feature-gates=ResourceCleanup=true",)),
    "placement": ("controller", ()),
    "work": ("manager", ("--feature-gates=ManifestWorkReplicaSet=true",)),
    "addon": ("manager", ()),
}
"""The subcommand and the flags of each controller."""


async def ocm_hub(progress: ProgressReporter) -> OcmHub:
    """The controllers, built unless they are in the cache."""
    return OcmHub(
        **{name: await built("ocm", f"{PACKAGES}/{name}", name, progress) for name in CONTROLLERS}
    )


async def api_folder() -> Path:
    """The folder of the Go module that has the CRDs."""
    go = shutil.which("go")
    assert go is not None
    command = (go, "list", "-m", "-f", "{{.Dir}}", API_MODULE)
    for fetch in ((go, "mod", "download", API_MODULE), command):
        process = await asyncio.create_subprocess_exec(
            *fetch, cwd=modules() / "ocm", stdout=asyncio.subprocess.PIPE
        )
        output, _ = await asyncio.wait_for(process.communicate(), 600)
        assert process.returncode == 0, fetch
    return Path(output.decode().strip())


async def definitions() -> list[Object]:
    """All CRDs of Open Cluster Management, each once; the newest file of a kind counts."""
    folder = await api_folder()
    found: dict[str, Object] = {}
    for each in HUB_FOLDERS:
        for file in sorted((folder / each).glob("*.crd.yaml")):
            for crd in load_all(file.read_bytes()):
                found.setdefault(crd["metadata"]["name"], crd)
    return list(found.values())


async def install_definitions(client: Client, *, spoke: bool) -> None:
    """Create the CRDs of a hub or of a spoke, and wait until they are served."""
    for crd in await definitions():
        if (crd["spec"]["names"]["kind"] in SPOKE_KINDS) == spoke:
            await client.apply(CRDS, crd)
            await until_served(client, crd["metadata"]["name"])


async def until_served(client: Client, name: str) -> None:
    """Wait until a kind is served."""

    async def is_served() -> bool:
        crd = await client.get(CRDS, name)
        conditions: Sequence[Object] = crd.get("status", {}).get("conditions") or []
        return any(
            each["type"] == "Established" and each["status"] == "True" for each in conditions
        )

    await until(is_served, f"{name} is served")


async def prepare_hub(client: Client) -> None:
    """Create what the hub's controllers expect: CRDs, namespaces, and who may register."""
    await install_definitions(client, spoke=False)
    for name in (OPERATOR_NAMESPACE, HUB_NAMESPACE):
        await client.apply(NAMESPACES, named("v1", "Namespace", name))
    account = named("v1", "ServiceAccount", BOOTSTRAP_ACCOUNT, OPERATOR_NAMESPACE)
    await client.apply(SERVICE_ACCOUNTS, account)
    binding = bootstrap_binding(OPERATOR_NAMESPACE)
    await client.apply(CLUSTER_ROLES, cluster_role(binding["roleRef"]["name"], BOOTSTRAP))
    await client.apply(CLUSTER_ROLE_BINDINGS, binding)


@contextlib.asynccontextmanager
async def running(
    hub: OcmHub,
    lent: Lent,
    folder: Path,
    controllers: Sequence[str] = ("registration", "placement", "work"),
    registration_flags: Sequence[str] = (),
) -> AsyncGenerator[dict[str, int]]:
    """Controllers of the hub run; the pids by name."""
    folder.mkdir(parents=True, exist_ok=True)
    async with contextlib.AsyncExitStack() as stack:
        pids: dict[str, int] = {}
        for name in controllers:
            subcommand, flags = CONTROLLERS[name]
            more = registration_flags if name == "registration" else ()
            port = reserved_port(folder / f"{name}-ports")
            command = (
                *(str(getattr(hub, name)), subcommand),
                *("--kubeconfig", str(lent.kubeconfig), "--namespace", HUB_NAMESPACE),
                *("--disable-leader-election", "--listen", f"127.0.0.1:{port}", *flags, *more),
            )
            process = leashed(command, log=folder / f"{name}.log", home=folder)
            pids[name] = await stack.enter_async_context(process)
        yield pids
