"""Whether the API server enforces the fleet's rules yet; it takes up new ones a second late.

Until then one who may ask to join could accept itself, so no join command is printed before.
"""

import asyncio
import time

from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.meta import Object
from knfleet.hub.admission.policies import ACCEPTANCE
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Forbidden, KubeError
from knfleet.workflows.object_lists import WaitTimeout

POLL_SECONDS = 0.2
ENFORCED_SECONDS = 30.0
CREATED = "created"
SELF_MADE: Object = {
    "apiVersion": CLUSTERS.api_version,
    "kind": CLUSTERS.kind,
    "metadata": {"name": "accepts-itself"},
    "spec": {"hubAcceptsClient": True},
}


async def enforced(asking: Client, *, seconds: float = ENFORCED_SECONDS) -> None:
    """Return when one who may ask to join is kept from accepting itself; nothing is written."""
    ends = time.monotonic() + seconds
    while answer := await unlike_a_refusal(asking):
        if time.monotonic() > ends:
            raise WaitTimeout(f"{asking.cluster}: {problem(answer, seconds)}, then run init again")
        await asyncio.sleep(POLL_SECONDS)


def problem(answer: str, seconds: float) -> str:
    """What is wrong, by the answer to a trial, and what to do about it."""
    if answer != CREATED:
        return f"whether the fleet's rules are kept cannot be seen ({answer}); fix that"
    return (
        "a cluster that registers could accept itself. ValidatingAdmissionPolicy"
        f" {ACCEPTANCE.name} has no effect after {seconds:.0f} s; turn the API server's admission"
        " plugin ValidatingAdmissionPolicy on"
    )


async def unlike_a_refusal(asking: Client) -> str:
    """What the server says instead of refusing a cluster that accepts itself."""
    try:
        await asking.create(CLUSTERS, SELF_MADE, dry_run=True)
    except Forbidden as error:
        return "" if ACCEPTANCE.name in str(error) else str(error)
    except KubeError as error:
        return str(error)
    return CREATED
