"""The conditions of an add-on on a cluster, from the state of its works. Pure.

Types and reasons are those of Open Cluster Management. Messages name what is wrong.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from knfleet.api.addon.addon_configuration import AddOnConfig
from knfleet.api.addon.managedclusteraddon import ConfigReference, ManagedClusterAddOn
from knfleet.api.addon.names import (
    AVAILABLE,
    CONFIGURED,
    HOOK_COMPLETED,
    MANIFEST_APPLIED,
    PROGRESSING,
)
from knfleet.api.conditions import StandardCondition, find
from knfleet.api.knative.conditions import Status
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.api.work.manifestwork import (
    APPLIED,
    CONFIG_SPEC_HASH,
    ManifestStatus,
    ManifestWork,
    ResourceIdentifier,
)
from knfleet.api.work.manifestwork import AVAILABLE as WORK_AVAILABLE
from knfleet.hub.addon.delivery.addon_works import config_hashes

COMPLETED = "Completed"
FAILED = "Failed"
IN_PROGRESS = "Progressing"


class DeliveredWork(Struct, frozen=True):
    """What is known of a work."""

    name: str
    applied: StandardCondition | None
    available: StandardCondition | None
    manifests: tuple[ManifestStatus, ...]
    hashes: str
    """The configurations that it was made from, as its annotation says."""
    generation: int

    @property
    def is_reported(self) -> bool:
        """Whether the agent has reported on the work as it is now."""
        return self.applied is not None and self.applied.observed_generation in (
            0,
            self.generation,
        )

    @property
    def is_ready(self) -> bool:
        """Whether the work as it is now is applied, and its objects are there."""
        return all(
            each is not None
            and each.status == "True"
            and each.observed_generation in (0, self.generation)
            for each in (self.applied, self.available)
        )


def work_state(manifest: Object) -> DeliveredWork:
    """What a ManifestWork says."""
    work = decode(manifest, ManifestWork)
    return DeliveredWork(
        name=work.metadata.name,
        applied=find(work.status.conditions, APPLIED),
        available=find(work.status.conditions, WORK_AVAILABLE),
        manifests=tuple(work.status.resource_status.manifests),
        hashes=work.metadata.annotations.get(CONFIG_SPEC_HASH, ""),
        generation=work.metadata.generation,
    )


def condition(type_: str, status: Status, reason: str, message: str) -> StandardCondition:
    """A condition of an add-on."""
    return StandardCondition(type=type_, status=status, reason=reason, message=message)


def manifest_applied(
    works: Sequence[DeliveredWork], type_: str = MANIFEST_APPLIED
) -> StandardCondition | None:
    """Whether the manifests are applied; None while the agent has not reported."""
    if not works:
        return condition(type_, "True", "AddonManifestApplied", "no manifest need to apply")
    failed = [each for each in works if is_failed(each)]
    if failed:
        return condition(type_, "False", "AddonManifestAppliedFailed", failures(failed))
    if all(each.is_reported for each in works):
        text = "manifests of addon are applied successfully"
        return condition(type_, "True", "AddonManifestApplied", text)
    return None


def is_failed(work: DeliveredWork) -> bool:
    """Whether the agent could not apply the work as it is now."""
    return work.is_reported and work.applied is not None and work.applied.status == "False"


def failures(works: Iterable[DeliveredWork]) -> str:
    """Which manifests could not be applied, and why."""
    found = [
        f"{each.resource_meta.kind} {each.resource_meta.name}: {applied.message}"
        for work in works
        for each in work.manifests
        if (applied := find(each.conditions, APPLIED)) is not None and applied.status == "False"
    ]
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return f"failed to apply the manifests of addon: {'; '.join(found[:3])}{more}"


def not_rendered(problem: str, type_: str = MANIFEST_APPLIED) -> StandardCondition:
    """Why there are no manifests, or not the right ones."""
    return condition(type_, "False", "ManifestWorkApplyFailed", problem)


def configured(missing: Sequence[ConfigReference], *, waits: str = "") -> StandardCondition:
    """Whether an add-on has the configurations that it should have."""
    if missing:
        names = ", ".join(f"{each.type} {name_of(each)}" for each in missing)
        return condition(
            CONFIGURED,
            "False",
            "ConfigurationsNotConfigured",
            f"Not found: {names}. What was configured before stays; create them, or change the"
            " references.",
        )
    if waits:
        text = f"Configurations updated and not configured yet: {waits}"
        return condition(CONFIGURED, "False", "ConfigurationsNotConfigured", text)
    return condition(CONFIGURED, "True", "ConfigurationsConfigured", "Configurations configured")


def name_of(reference: ConfigReference) -> str:
    """A configuration as messages name it."""
    return str(reference.desired_config.referent) if reference.desired_config else reference.name


def unsupported_configuration(configs: Sequence[AddOnConfig]) -> StandardCondition:
    """The add-on does not understand a configuration."""
    first = configs[0]
    return condition(
        PROGRESSING,
        "False",
        "ConfigurationUnsupported",
        f"Configuration with gvr {first.group}/{first.resource} is not supported for this addon;"
        f" remove {first.referent} from spec.configs",
    )


def progressing(
    addon: ManagedClusterAddOn,
    works: Sequence[DeliveredWork],
    hosting: Sequence[DeliveredWork] = (),
) -> StandardCondition:
    """How far the configurations of an add-on have come on the cluster."""
    every = [*works, *hosting]
    if find(addon.status.conditions, MANIFEST_APPLIED) is None:
        return condition(
            PROGRESSING,
            "False",
            "WaitingForManifestApplied",
            "Waiting for ManagedClusterAddOn ManifestApplied condition",
        )
    if failed := [each for each in every if is_failed(each)]:
        return condition(PROGRESSING, "False", FAILED, failures(failed))
    wanted = config_hashes(addon.status.config_references)
    if not every:
        return in_progress("no addon works")
    if not all(same_hashes(each.hashes, wanted) for each in every):
        return in_progress("mca and work configs mismatch")
    if not all(each.is_ready for each in every):
        return in_progress("work is not ready")
    return condition(PROGRESSING, "False", COMPLETED, "completed with no errors.")


def in_progress(what: str) -> StandardCondition:
    """The cluster does not have the configurations yet."""
    return condition(PROGRESSING, "True", IN_PROGRESS, f"progressing... {what}")


def same_hashes(found: str, wanted: str) -> bool:
    """Whether a work was made from the configurations that are wanted."""
    if not found:
        return wanted == "{}"
    try:
        hashes = msgspec.json.decode(found, type=dict[str, str])
    except msgspec.DecodeError:
        return False
    return all(hashes.values()) and hashes == msgspec.json.decode(wanted)


def available(
    addon: str, works: Sequence[DeliveredWork], probed: Sequence[ResourceIdentifier]
) -> StandardCondition:
    """Whether the workloads of an add-on are ready."""
    if not works:
        text = "Addon manifestWork is not found"
        return condition(AVAILABLE, "Unknown", "WorkNotFound", text)
    for work in works:
        if work.available is None:
            text = "Addon manifestWork is not applied yet"
            return condition(AVAILABLE, "Unknown", "WorkNotApplied", text)
        if work.available.status == "False":
            return condition(AVAILABLE, "False", "WorkNotApplied", work.available.message)
    statuses = [each for work in works for each in work.manifests]
    results = [values_of(each, statuses) for each in probed]
    problems = [
        problem
        for identifier, values in zip(probed, results, strict=True)
        if values and (problem := problem_of(identifier, values))
    ]
    if problems:
        text = f"Probe addon unavailable with err {'; '.join(problems)}"
        return condition(AVAILABLE, "False", "ProbeUnavailable", text)
    if not all(results):
        return condition(AVAILABLE, "Unknown", "NoProbeResult", "Probe results are not returned")
    return condition(AVAILABLE, "True", "ProbeAvailable", f"{addon} add-on is available.")


def values_of(
    identifier: ResourceIdentifier, statuses: Sequence[ManifestStatus]
) -> dict[str, int | str]:
    """The values that were reported of an object."""
    for each in statuses:
        meta = each.resource_meta
        found = (meta.group, meta.resource, meta.namespace, meta.name)
        wanted = (identifier.group, identifier.resource, identifier.namespace, identifier.name)
        if found == wanted and each.status_feedback is not None:
            return {
                value.name: read
                for value in each.status_feedback.values
                if (read := first_of(value.field_value.integer, value.field_value.string))
                is not None
            }
    return {}


def first_of(number: int | None, text: str | None) -> int | str | None:
    """A value that is a number or a text."""
    return number if number is not None else text


READY = {
    "deployments": ("ReadyReplicas", "Replicas"),
    "daemonsets": ("NumberReady", "DesiredNumberScheduled"),
}


def problem_of(identifier: ResourceIdentifier, values: dict[str, int | str]) -> str:
    """What is wrong with a workload; empty when nothing is."""
    ready_name, wanted_name = READY[identifier.resource]
    # A Deployment without ready pods has no such number in its status at all.
    ready, wanted = values.get(ready_name, 0), values.get(wanted_name, 0)
    if not isinstance(ready, int) or not isinstance(wanted, int):
        return f"{identifier.resource} {identifier.namespace}/{identifier.name}: no numbers"
    is_enough = (
        ready >= 1 or wanted == 0 if identifier.resource == "deployments" else ready == wanted
    )
    if is_enough and wanted_name in values:
        return ""
    return (
        f"desiredNumberReplicas is {wanted} but readyReplica is {ready} for {identifier.resource}"
        f" {identifier.namespace}/{identifier.name}"
    )


def hook_completed(work: DeliveredWork, hooks: Sequence[ResourceIdentifier]) -> StandardCondition:
    """Whether all hooks have run successfully."""
    waiting: list[str] = []
    for each in hooks:
        values = values_of(each, work.manifests)
        done = (
            values.get("JobComplete") == "True"
            if each.resource == "jobs"
            else values.get("PodPhase") == "Succeeded"
        )
        if not done:
            waiting.append(f"{each.resource} {each.namespace}/{each.name}")
    if work.available is not None and work.available.status == "True" and not waiting:
        text = f"hook manifestWork {work.name} is completed."
        return condition(HOOK_COMPLETED, "True", "HookManifestIsCompleted", text)
    what = f": waiting for {', '.join(waiting)}" if waiting else "."
    text = f"hook manifestWork {work.name} is not completed{what}"
    return condition(HOOK_COMPLETED, "False", "HookManifestIsNotCompleted", text)
