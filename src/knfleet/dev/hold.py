"""Makes workloads of a dev cluster misbehave on purpose, and lets them go again."""

from msgspec import Struct

from knfleet.api.core import DAEMON_SETS, DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS
from knfleet.api.meta import Key, Resource
from knfleet.dev.errors import DevError
from knfleet.dev.node.annotations import BREAK, HOLD, SLOW, asked
from knfleet.kube.client.verbs import Client
from knfleet.kube.endpoint import Connection
from knfleet.kube.errors import KubeError, NotFound

SHORT_NAMES = {
    "deploy": DEPLOYMENTS,
    "sts": STATEFUL_SETS,
    "ds": DAEMON_SETS,
    "rs": REPLICA_SETS,
    "po": PODS,
}
KINDS: dict[str, Resource] = SHORT_NAMES | {
    name: resource
    for resource in (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, REPLICA_SETS, JOBS, PODS)
    for name in (resource.kind.lower(), resource.plural)
}


class HeldWorkload(Struct, frozen=True):
    """A workload as people name it: deploy/web."""

    resource: Resource
    key: Key

    @classmethod
    def parse(cls, text: str, namespace: str) -> "HeldWorkload":
        """The workload that KIND/NAME means."""
        kind, _, name = text.partition("/")
        if not name or kind.lower() not in KINDS:
            raise DevError(
                f"{text!r} is not a workload; write KIND/NAME, such as deploy/web, with one of"
                f" {', '.join(sorted(KINDS))}"
            )
        return cls(KINDS[kind.lower()], Key(namespace, name))

    def __str__(self) -> str:
        return f"{self.resource.kind.lower()}/{self.key.name}"


def wanted(*, broken: str, slow: str) -> dict[str, str | None]:
    """The annotations for a workload that is broken, slow, or else simply held."""
    annotations = {BREAK: broken, SLOW: slow}
    given = {key: value for key, value in annotations.items() if value} or {HOLD: "true"}
    if problems := asked(given, {}).problems:
        raise DevError("; ".join(problems))
    return {HOLD: None, BREAK: None, SLOW: None, **given}


async def annotate(
    connection: Connection, workload: HeldWorkload, annotations: dict[str, str | None]
) -> None:
    """Put the annotations on a workload."""
    async with Client(connection) as client:
        try:
            patch = {"metadata": {"annotations": annotations}}
            await client.patch(workload.resource, workload.key, patch)
        except NotFound as error:
            raise DevError(
                f"{workload} is not in namespace {workload.key.namespace} of"
                f" {connection.cluster}; another namespace is chosen with --namespace"
            ) from error
        except KubeError as error:
            raise DevError(f"{error}; repair the cluster with: knfleet dev up") from error


RELEASED: dict[str, str | None] = {HOLD: None, BREAK: None, SLOW: None}
