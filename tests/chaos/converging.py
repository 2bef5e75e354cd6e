"""The end of a run: every custom resource is ready, and a fresh rendering would change nothing."""

import asyncio
import os
import sys
import time
from collections.abc import Callable

from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import items, part
from knfleet.dev.control_plane import CONTROLLER_MANAGER
from knfleet.kube.errors import KubeError
from testbed.waiting import until
from tests.chaos import garbage
from tests.chaos.faults import dead
from tests.chaos.resources import Wanted
from tests.chaos.stage import REPLICAS, Stage

PLAN_SECONDS = 120.0
Say = Callable[[str], None]


class NotConverged(Exception):
    """Something is not as it was asked for, long after the last fault."""


async def ready(stage: Stage, seconds: float, say: Say) -> None:
    """Wait until every custom resource is ready at the version that it asks for."""
    waiting: dict[str, str] = {}

    async def holds() -> bool:
        for title, wanted in stage.wanted.items():
            why = await why_not_ready(stage, wanted)
            if why and why != waiting.get(title):
                say(f"waits for {title}: {why}")
            waiting[title] = why
        return not any(waiting.values())

    try:
        await until(holds, "all are ready", seconds=seconds)
    except AssertionError:
        if left := await garbage.left(stage):
            say(f"waits for the garbage collectors to delete {', '.join(left)}")
            await collected(stage, say)
            return await ready(stage, seconds, say)
        told = "; ".join(f"{title}: {why}" for title, why in waiting.items() if why)
        raise NotConverged(f"not ready {seconds:.0f} s after the last fault: {told}") from None


async def collected(stage: Stage, say: Say) -> None:
    """Wait until the garbage collectors of all spokes have deleted what only they delete.

    One that has given up a pod is started again, as an administrator would.
    """

    async def is_collected() -> bool:
        return not await garbage.left(stage)

    for seconds in (garbage.PATIENCE_SECONDS, garbage.RESTARTED_SECONDS):
        try:
            return await until(is_collected, "no pod is left", seconds=seconds)
        except AssertionError:
            left = await garbage.left(stage)
        if seconds == garbage.PATIENCE_SECONDS:
            for spoke in sorted({each.partition(":")[0] for each in left}):
                say(f"starts the controller manager of {spoke} again")
                async with dead(stage.pool, spoke, CONTROLLER_MANAGER):
                    pass
    raise NotConverged(f"not deleted by a new controller manager: {', '.join(left)}")


async def why_not_ready(stage: Stage, wanted: Wanted) -> str:
    """What is in the way of a custom resource; nothing when it is ready."""
    key = wanted.key
    try:
        found = await stage.hub.client.get(wanted.resource, key.name, key.namespace, deadline=5)
    except KubeError as error:
        return str(error)
    return unready(found)


def unready(manifest: Object) -> str:
    """Why a custom resource is not ready at the version that it asks for."""
    meta, status = manifest["metadata"], part(manifest, "status")
    if "deletionTimestamp" in meta:
        return "it is being deleted"
    if status.get("observedGeneration") != meta["generation"]:
        return f"it speaks of generation {status.get('observedGeneration')}"
    conditions = items(manifest, "status", "conditions")
    bad = [each for each in conditions if each["status"] != "True"]
    told = [f"{each['type']}: {each.get('message', '')}" for each in bad]
    if not str(status.get("version", "")).startswith(f"{manifest['spec']['version']}."):
        return "; ".join((f"it has version {status.get('version')}", *told))
    if any((each["type"], each["status"]) == ("Ready", "True") for each in conditions):
        return ""
    return "; ".join(told) or "it is new"


async def settled(stage: Stage, seconds: float, say: Say) -> float:
    """Wait until all are ready and a plan is empty; how long that took."""
    began = time.monotonic()
    await ready(stage, seconds, say)
    deadline = began + seconds
    while True:
        code, printed = await planned(stage)
        if code == 0:
            return time.monotonic() - began
        say(f"`knfleet plan --all` ends with {code}: {printed.strip()[:600]}")
        if time.monotonic() > deadline:
            raise NotConverged(
                f"`knfleet plan --all` ends with {code}, {seconds:.0f} s after the last fault:\n"
                f"{printed[-4000:]}"
            )
        await asyncio.sleep(1)


async def planned(stage: Stage) -> tuple[int, str]:
    """The exit code of `knfleet plan --all`, and what it prints."""
    lent = stage.hub.lent
    providers = lent.folder.cluster(lent.name) / f"{REPLICAS[0]}.providers.json"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "knfleet", "plan", "--all", "-o", "wide"),
        f"--kubeconfig={lent.kubeconfig}",
        f"--clusterprofile-provider-file={providers}",
        f"--dir={stage.releases}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(os.environ),
    )
    try:
        async with asyncio.timeout(PLAN_SECONDS):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, printed.decode(errors="replace")
