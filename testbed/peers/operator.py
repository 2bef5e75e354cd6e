"""The Knative Operator at work: what it makes of one sample on a real cluster.

It listens nowhere. Its profiling port is given as a word, which is no port, and the address of its
health probes is kept by us: it goes on without both.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import cast

import psutil
from msgspec import Struct

from knfleet.api.core import EVENTS
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object, Resource
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Invalid
from testbed.clusters import Lent
from testbed.peers.goproject import GoProject
from testbed.peers.leash import GRACE_SECONDS
from testbed.peers.remote import offer, profile_of
from testbed.peers.samples import KODATA, Sample
from testbed.peers.surroundings import OPERATOR_NAMESPACE, prepare, written

HEALTH_PORT = 8080
READY_SECONDS = 240.0
SETTLED_SECONDS = 8.0
"""A problem that stays for so long, while the operator tries again and again, is its answer."""
PATIENT_SECONDS = 60.0
PASSING = ("failed calling webhook", "no matches for kind", "accessor error", "has been modified")
"""Parts of problems that end by themselves, when something else has caught up."""
POLL_SECONDS = 0.2
PREFIXES = (
    "Install failed with message: ",
    "Version migration is not eligible with message: ",
)


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a sample."""

    objects: list[Object] = []
    problem: str = ""
    """Why nothing, or not all, was installed."""
    crashed: bool = False
    version: str = ""
    manifests: list[str] = []


@contextlib.contextmanager
def silenced() -> Generator[None]:
    """Keep the address of the operator's health probes, so that it does not listen there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as keeper:
        with contextlib.suppress(OSError):  # somebody has it already, which is as good
            keeper.bind(("127.0.0.1", HEALTH_PORT))
        yield


async def observe(project: GoProject, sample: Sample, lent: Lent, folder: Path) -> Outcome:
    """Let the operator install a sample on a clean cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = sample.placed(folder, project.kodata)
    resource = SERVINGS if manifest["kind"] == SERVINGS.kind else EVENTINGS
    async with Client(lent.connection) as client:
        await prepare(client, sample, project.definitions())
        try:
            manifest = await client.create(resource, manifest, sample.namespace)
        except Invalid as error:
            outcome = Outcome(problem=str(error))
        else:
            log = folder / "operator.log"
            options = ["--kubeconfig", str(lent.kubeconfig)]
            profile = profile_of(manifest)
            if profile is not None:
                options += await offer(client, lent, profile, folder)
            async with running(project, sample, options, log) as process:
                outcome = await verdict(client, resource, manifest, process)
                if sample.again and outcome == Outcome():
                    outcome = await second_verdict(client, resource, manifest, log)
            outcome = await completed(client, outcome, resource, manifest, log)
    return relative(outcome, folder, project.kodata)


@contextlib.asynccontextmanager
async def running(
    project: GoProject, sample: Sample, options: list[str], log: Path
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """The operator as a process; at the end it finishes what it has begun."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(log.parent),
        "POD_NAME": "operator-0",
        "SYSTEM_NAMESPACE": OPERATOR_NAMESPACE,
        "KO_DATA_PATH": str(project.kodata),
        "PROFILING_PORT": "none",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    if sample.minimum_kubernetes:
        environment["KUBERNETES_MIN_VERSION"] = sample.minimum_kubernetes
    quickly = ("--kube-api-qps=1000", "--kube-api-burst=2000")
    program = [str(project.binary), "--disable-ha", *quickly, *options]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "testbed.peers.leash", *program),
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(2 * GRACE_SECONDS):
            code = await process.wait()
    assert code != signal.SIGKILL, "the operator was cut off in the middle of its work"


async def verdict(
    client: Client, resource: Resource, manifest: Object, process: asyncio.subprocess.Process
) -> Outcome:
    """Wait until the operator is done, or has a problem that stays."""
    key = Key.of(manifest)
    deadline = time.monotonic() + READY_SECONDS
    problem, since = "", time.monotonic()
    while process.returncode is None:
        now = time.monotonic()
        found = conditions(await client.get(resource, key.name, key.namespace))
        if found.get("Ready", {}).get("status") == "True":
            assert listening(process.pid) == []
            return Outcome()
        told = await trouble(client, found, key)
        if told != problem:
            problem, since = told, now
        if problem and now - since > patience(problem):
            return Outcome(problem=problem)
        assert now < deadline, f"neither ready nor failed: {found}"
        await asyncio.sleep(POLL_SECONDS)
    return Outcome(crashed=True)


async def second_verdict(
    client: Client, resource: Resource, manifest: Object, log: Path
) -> Outcome:
    """Make the operator look once more; its problem then, if it has one."""
    key = Key.of(manifest)
    seen = log.stat().st_size
    await client.patch(resource, key, {"metadata": {"annotations": {"look": "again"}}})
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        problem = await trouble(
            client, conditions(await client.get(resource, key.name, key.namespace)), key
        )
        if problem:
            return Outcome(problem=problem)
        # The first of two ends may be that of a pass which had begun before.
        if log.read_bytes()[seen:].count(b"Reconcile succeeded") >= 2:
            return Outcome()
        await asyncio.sleep(POLL_SECONDS)
    raise AssertionError("neither succeeded nor failed again")


def listening(pid: int) -> list[str]:
    """Where a process or one of its children listens."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    sockets = [socket for process in family for socket in process.net_connections("inet")]
    return [str(socket.laddr) for socket in sockets if socket.status == psutil.CONN_LISTEN]


def patience(problem: str) -> float:
    """For how long a problem must stay until it counts."""
    return PATIENT_SECONDS if any(part in problem for part in PASSING) else SETTLED_SECONDS


async def completed(
    client: Client, outcome: Outcome, resource: Resource, manifest: Object, log: Path
) -> Outcome:
    """The outcome with all that is to be seen of it after the operator has ended."""
    key = Key.of(manifest)
    if outcome.crashed:
        lines = log.read_text(errors="replace").splitlines()
        panics = [line for line in lines if line.startswith("panic: ")]
        return Outcome(crashed=True, problem=panics[0] if panics else lines[-1])
    if outcome.problem:
        return outcome
    status = (await client.get(resource, key.name, key.namespace)).get("status", {})
    return Outcome(
        objects=await written(client),
        version=status.get("version", ""),
        manifests=status.get("manifests", []),
    )


def conditions(manifest: Object) -> dict[str, Object]:
    """The conditions of a custom resource, by type."""
    found = cast("list[Object]", manifest.get("status", {}).get("conditions", []))
    return {condition["type"]: condition for condition in found}


async def trouble(client: Client, found: dict[str, Object], key: Key) -> str:
    """What the operator complains of, in a condition or else in an event."""
    for type_ in ("VersionMigrationEligible", "TargetClusterResolved", "InstallSucceeded"):
        condition = found.get(type_, {})
        if condition.get("status") == "False":
            message = str(condition.get("message", ""))
            for prefix in PREFIXES:
                message = message.removeprefix(prefix)
            return message
    for event in (await client.list(EVENTS, key.namespace)).items:
        if event.get("reason") == "InternalError" and event["involvedObject"]["name"] == key.name:
            return str(event.get("message", ""))
    return ""


def relative(outcome: Outcome, files: Path, kodata: Path) -> Outcome:
    """The outcome without the names of this machine's folders."""

    def general(text: str) -> str:
        return text.replace(str(kodata), KODATA).replace(str(files), "${FILES}")

    return Outcome(
        objects=outcome.objects,
        problem=general(outcome.problem),
        crashed=outcome.crashed,
        version=outcome.version,
        manifests=[general(path) for path in outcome.manifests],
    )
