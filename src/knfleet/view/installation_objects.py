"""The objects of an installation on its target, one row each, and how one differs from desired.

The same look as a plan's, for a custom resource as it is: what the dashboard lists.
"""

import asyncio
from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.apply.act.delete import other_set
from knfleet.apply.observe.readiness import ReadinessState, health
from knfleet.apply.observe.watches import JUDGED
from knfleet.apply.plan.steps import ApplyStep, StepAction
from knfleet.apply.refs import Ref
from knfleet.clusters.preflight import kube_system_uid
from knfleet.clusters.provider_file import ProviderFile
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.operator.desired_objects import Renderer
from knfleet.release.releases import Releases
from knfleet.view.differences import FieldChange, differences
from knfleet.view.plan.dry_run import DryRun, tried
from knfleet.view.plan.planner import HUB_SECONDS, failure_text
from knfleet.view.plan.preview import KINDS, PlanPreview, PlanSubject, prospect
from knfleet.view.target_access import target_of


class ObjectState(StrEnum):
    """How an object stands, what needs a person first."""

    REFUSED = "refused"
    """The server, or another owner, does not let us make it so."""
    MISSING = "missing"
    DIFFERS = "differs"
    NOT_READY = "not ready"
    LEFT_OVER = "left over"
    """It is not wanted any more, and goes when the rest is ready."""
    AS_DESIRED = "as desired"


ORDER = {standing: number for number, standing in enumerate(ObjectState)}


class ObjectRow(Struct, frozen=True, omit_defaults=True):
    """One object of an installation."""

    ref: Ref
    standing: ObjectState
    message: str = ""
    fields: int = 0
    """How many fields differ."""
    ready: int = 0
    """Of how many wanted pods that many are ready."""
    wanted: int = 0


async def objects_of(
    hub: Client, manifest: Object, *, providers: ProviderFile | None, releases: Releases
) -> tuple[ObjectRow, ...]:
    """All objects of a custom resource's installation, troubled ones first.

    Raises what stands in the way: `AccessError` and other `KubeError`s, `ReleaseError`,
    `RenderError`, `DecodeError`, `AnchorError`; all have messages for people.
    """
    subject = PlanSubject(KINDS[manifest["kind"]], manifest, manifest)
    hub_uid = await kube_system_uid(hub, HUB_SECONDS)
    async with target_of(hub, manifest, providers) as client:
        seen = await prospect(client, subject, Renderer(releases), hub_uid=hub_uid)
        home = manifest["metadata"]["namespace"]
        trials, workloads = await asyncio.gather(
            tried(client, seen.plan.steps, home), judged(client, seen)
        )
    return rows_of(seen, trials, workloads)


async def diff_of(
    hub: Client,
    manifest: Object,
    ref: Ref,
    *,
    providers: ProviderFile | None,
    releases: Releases,
) -> tuple[FieldChange, ...]:
    """What the operator would change on one object; empty when nothing, or when it is not wanted.

    Raises what `objects_of` raises; a refusal of the server, as `LookupError` with its words.
    """
    subject = PlanSubject(KINDS[manifest["kind"]], manifest, manifest)
    hub_uid = await kube_system_uid(hub, HUB_SECONDS)
    async with target_of(hub, manifest, providers) as client:
        seen = await prospect(client, subject, Renderer(releases), hub_uid=hub_uid)
        steps = [step for step in seen.plan.steps if step.desired.ref == ref]
        trials = await tried(client, steps, manifest["metadata"]["namespace"])
    for trial in trials:
        if trial.failure is not None:
            raise LookupError(failure_text(trial.failure)[0])
        return differences(trial.before, trial.after)
    return ()


async def judged(client: Client, seen: PlanPreview) -> dict[Ref, Object]:
    """The workloads and Jobs that are there, whole: their status tells whether they are ready."""
    wanted = [
        each.desired
        for each in (*seen.plan.kept, *seen.plan.steps)
        if each.observed is not None and each.desired.ref.group_kind in JUDGED
    ]
    places = sorted({(each.resource, each.ref.namespace) for each in wanted})
    lists = await asyncio.gather(*(client.list(*place) for place in places), return_exceptions=True)
    found: dict[Ref, Object] = {}
    for listing in lists:
        if isinstance(listing, NotFound):
            continue
        if isinstance(listing, BaseException):
            raise listing
        found |= {Ref.of(manifest): manifest for manifest in listing.items}
    return {each.ref: found[each.ref] for each in wanted if each.ref in found}


def rows_of(
    seen: PlanPreview, trials: Iterable[DryRun], workloads: dict[Ref, Object]
) -> tuple[ObjectRow, ...]:
    """A row for each object."""
    rows = [kept_row(step, workloads) for step in seen.plan.kept]
    rows += [tried_row(trial, workloads) for trial in trials]
    rows += [stopped_row(step) for step in seen.plan.stopped]
    for failure in (*seen.desired.rejected, *seen.unseen):
        rows.append(ObjectRow(failure.ref, ObjectState.REFUSED, failure_text(failure)[0]))
    left = [*seen.pruning.members, *seen.pruning.released]
    text = "it is not wanted any more; it goes when the rest is ready"
    rows += [ObjectRow(each.ref, ObjectState.LEFT_OVER, text) for each in left]
    return in_order(rows)


def in_order(rows: Sequence[ObjectRow]) -> tuple[ObjectRow, ...]:
    """Troubled ones first, then by kind and name."""
    return tuple(sorted(rows, key=lambda row: (ORDER[row.standing], row.ref)))


def kept_row(step: ApplyStep, workloads: dict[Ref, Object]) -> ObjectRow:
    """The row of an object that is as it should be, and may not work all the same."""
    return with_health(ObjectRow(step.desired.ref, ObjectState.AS_DESIRED), workloads)


def tried_row(trial: DryRun, workloads: dict[Ref, Object]) -> ObjectRow:
    """The row of an object that the operator would write."""
    if trial.failure is not None:
        return ObjectRow(trial.ref, ObjectState.REFUSED, failure_text(trial.failure)[0])
    if trial.before is None:
        return ObjectRow(trial.ref, ObjectState.MISSING, "it is not there")
    if trial.is_recreated:
        return ObjectRow(trial.ref, ObjectState.DIFFERS, "it is deleted and made anew")
    fields = differences(trial.before, trial.after)
    if not fields:
        return with_health(ObjectRow(trial.ref, ObjectState.AS_DESIRED), workloads)
    names = ", ".join(each.field for each in fields[:3]) + (" …" if len(fields) > 3 else "")
    return ObjectRow(trial.ref, ObjectState.DIFFERS, names, len(fields))


def stopped_row(step: ApplyStep) -> ObjectRow:
    """The row of an object that must not be written now."""
    assert step.observed is not None
    if step.verdict == StepAction.REFUSE:
        return ObjectRow(step.desired.ref, ObjectState.REFUSED, other_set(step.observed))
    return ObjectRow(step.desired.ref, ObjectState.MISSING, "it is being deleted, then made anew")


def with_health(row: ObjectRow, workloads: dict[Ref, Object]) -> ObjectRow:
    """A row that also says how a workload is."""
    manifest = workloads.get(row.ref)
    if manifest is None:
        return row
    found = health(manifest)
    standing = row.standing if found.state == ReadinessState.READY else ObjectState.NOT_READY
    return ObjectRow(row.ref, standing, found.message, 0, found.ready, found.wanted)
