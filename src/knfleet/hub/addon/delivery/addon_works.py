"""The ManifestWorks that bring an add-on to its cluster, or to the one that hosts it. Pure.

Manifests are divided by size. One that is in a work already stays in it, since an object that
changes from one work to another could be deleted in between.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from knfleet.api.addon.managedclusteraddon import ADDONS, ConfigReference, ManagedClusterAddOn
from knfleet.api.addon.names import (
    ADDON_LABEL,
    ADDON_NAMESPACE_LABEL,
    DELETION_ORPHAN,
    HOSTED_LOCATION,
    PRE_DELETE,
    PRE_DELETE_LABEL,
)
from knfleet.api.core import BUILT_IN
from knfleet.api.meta import Key, Object, api_group
from knfleet.api.work.manifestwork import (
    CONFIG_SPEC_HASH,
    WORKS,
    DeleteOption,
    FeedbackRule,
    ManifestConfig,
    ManifestWorkSpec,
    ResourceIdentifier,
    SelectivelyOrphans,
    UpdateStrategy,
)
from knfleet.hub.addon.delivery.decorators import WORKLOADS, is_workload, objects, part
from knfleet.hub.addon.delivery.template import RenderedAddOn, title
from knfleet.hub.context import plain

MOST_BYTES = 400_000
"""Of manifests in one work; the API of works allows 512,000."""
MOST_MANIFESTS = 200
LARGEST_MANIFEST = 500_000

Place = Literal["managed", "hosting", "none"]
Identity = tuple[str, str, str, str]
WELL_KNOWN = FeedbackRule(type="WellKnownStatus")


class WorksError(ValueError):
    """Manifests that cannot be delivered; the message names the manifest."""


class Delivery(Struct, frozen=True):
    """What is delivered for an add-on, by place."""

    managed: tuple[Object, ...] = ()
    hosting: tuple[Object, ...] = ()
    managed_hooks: tuple[Object, ...] = ()
    """Jobs and Pods that run before the add-on is removed."""
    hosting_hooks: tuple[Object, ...] = ()


def annotations_of(manifest: Object) -> Object:
    """The annotations of a manifest."""
    return part(part(manifest, "metadata"), "annotations")


def labels_of(manifest: Object) -> Object:
    """The labels of a manifest."""
    return part(part(manifest, "metadata"), "labels")


def delivery(rendered: RenderedAddOn, *, hosted: bool) -> Delivery:
    """Where each manifest goes; raises `WorksError`."""
    found: dict[tuple[Place, bool], list[Object]] = {}
    for manifest in rendered.manifests:
        place = place_of(manifest) if hosted else "managed"
        found.setdefault((place, is_hook(manifest)), []).append(manifest)
    return Delivery(
        managed=tuple(found.get(("managed", False), ())),
        hosting=tuple(found.get(("hosting", False), ())),
        managed_hooks=tuple(found.get(("managed", True), ())),
        hosting_hooks=tuple(found.get(("hosting", True), ())),
    )


def place_of(manifest: Object) -> Place:
    """Where a manifest of a hosted add-on goes."""
    text = annotations_of(manifest).get(HOSTED_LOCATION) or labels_of(manifest).get(HOSTED_LOCATION)
    if text in (None, "", "managed"):
        return "managed"
    if text in ("hosting", "none"):
        return "hosting" if text == "hosting" else "none"
    raise WorksError(
        f"{title(manifest)}: {HOSTED_LOCATION} is {text!r}; it must be managed, hosting or none"
    )


def is_hook(manifest: Object) -> bool:
    """Whether a manifest is applied only before the add-on is removed."""
    kinds = (("batch", "Job"), ("", "Pod"))
    group, _ = api_group(str(manifest.get("apiVersion", "")))
    return (group, manifest.get("kind")) in kinds and (
        PRE_DELETE in annotations_of(manifest) or PRE_DELETE_LABEL in labels_of(manifest)
    )


def identity(manifest: Object) -> Identity:
    """What tells manifests apart."""
    group, _ = api_group(str(manifest.get("apiVersion", "")))
    meta = part(manifest, "metadata")
    kind, namespace, name = manifest.get("kind"), meta.get("namespace"), meta.get("name")
    return group, str(kind), str(namespace or ""), str(name)


def identifier(manifest: Object) -> ResourceIdentifier:
    """A manifest as rules of a work name it."""
    group, kind, namespace, name = identity(manifest)
    known = BUILT_IN.get((str(manifest.get("apiVersion", "")), kind))
    return ResourceIdentifier(
        group=group,
        resource=known.plural if known else guessed_plural(kind),
        namespace=namespace,
        name=name,
    )


def guessed_plural(kind: str) -> str:
    """The plural that a kind most likely has."""
    lower = kind.lower()
    if lower.endswith("s"):
        return f"{lower}es"
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


def work_prefix(addon: ManagedClusterAddOn, *, hosting: bool) -> str:
    """How the names of an add-on's works begin."""
    prefix = f"addon-{addon.name}-deploy"
    return f"{prefix}-hosting-{addon.cluster}" if hosting else prefix


def hook_name(addon: ManagedClusterAddOn, *, hosting: bool) -> str:
    """The name of the work with an add-on's hooks."""
    name = f"addon-{addon.name}-pre-delete"
    return f"{name}-hosting-{addon.cluster}" if hosting else name


def deploy_works(
    addon: ManagedClusterAddOn,
    agent_spec: ManifestWorkSpec,
    manifests: Sequence[Object],
    existing: Sequence[Object],
    *,
    namespaces: Sequence[str] = (),
    hosting: bool = False,
) -> list[Object]:
    """The works for a cluster; `existing` are those that are there. Raises `WorksError`."""
    all_manifests = [*map(namespace_manifest, namespaces), *manifests]
    if not manifests:
        return []
    orphans = [
        *(identifier(each) for each in all_manifests if DELETION_ORPHAN in annotations_of(each)),
        *(identifier(namespace_manifest(each)) for each in namespaces),
    ]
    spec = ManifestWorkSpec(
        delete_option=delete_option(agent_spec.delete_option, orphans),
        executor=agent_spec.executor,
    )
    prefix = work_prefix(addon, hosting=hosting)
    return [
        work(
            addon,
            f"{prefix}-{index}",
            share,
            msgspec.structs.replace(
                spec, manifest_configs=manifest_configs(share, agent_spec.manifest_configs)
            ),
            hosting=hosting,
        )
        for index, share in sorted(divided(all_manifests, existing, prefix).items())
    ]


def hook_work(
    addon: ManagedClusterAddOn,
    agent_spec: ManifestWorkSpec,
    manifests: Sequence[Object],
    *,
    hosting: bool = False,
) -> Object:
    """The work with an add-on's hooks, which report whether they are complete."""
    configs = [
        ManifestConfig(resource_identifier=identifier(each), feedback_rules=[WELL_KNOWN])
        for each in manifests
    ]
    spec = ManifestWorkSpec(manifest_configs=configs, executor=agent_spec.executor)
    return work(addon, hook_name(addon, hosting=hosting), manifests, spec, hosting=hosting)


def work(
    addon: ManagedClusterAddOn,
    name: str,
    manifests: Sequence[Object],
    spec: ManifestWorkSpec,
    *,
    hosting: bool,
) -> Object:
    """A work of an add-on; that of a hosted one belongs to the hosting cluster."""
    labels = {ADDON_LABEL: addon.name}
    metadata: Object = {"name": name, "namespace": addon.cluster, "labels": labels}
    if hosting:
        metadata["namespace"] = addon.hosting_cluster
        labels[ADDON_NAMESPACE_LABEL] = addon.cluster
    else:
        metadata["ownerReferences"] = [owner(addon)]
    if addon.status.config_references:
        metadata["annotations"] = {CONFIG_SPEC_HASH: config_hashes(addon.status.config_references)}
    return {
        "apiVersion": WORKS.api_version,
        "kind": WORKS.kind,
        "metadata": metadata,
        "spec": {"workload": {"manifests": list(manifests)}, **plain(spec)},
    }


def owner(addon: ManagedClusterAddOn) -> Object:
    """The add-on as the owner of its objects."""
    return {
        "apiVersion": ADDONS.api_version,
        "kind": ADDONS.kind,
        "name": addon.name,
        "uid": addon.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def config_hashes(references: Sequence[ConfigReference]) -> str:
    """The configurations that manifests were made from, as JSON."""
    found = {
        f"{each.type}/{each.desired_config.namespace}/{each.desired_config.name}": (
            each.desired_config.spec_hash
        )
        for each in references
        if each.desired_config is not None
    }
    return msgspec.json.encode(found, order="sorted").decode()


def namespace_manifest(name: str) -> Object:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def delete_option(
    written: DeleteOption | None, orphans: Sequence[ResourceIdentifier]
) -> DeleteOption | None:
    """What happens to the objects when the work is deleted."""
    if not orphans or (written is not None and written.propagation_policy == "Orphan"):
        return written
    written = written or DeleteOption()
    rules = written.selectively_orphans.orphaning_rules if written.selectively_orphans else []
    chosen = rules if written.propagation_policy == "SelectivelyOrphan" else []
    return msgspec.structs.replace(
        written,
        propagation_policy="SelectivelyOrphan",
        selectively_orphans=SelectivelyOrphans(orphaning_rules=[*chosen, *orphans]),
    )


def manifest_configs(
    manifests: Sequence[Object], written: Sequence[ManifestConfig]
) -> list[ManifestConfig]:
    """How the objects of a work are handled: as the template says, and with feedback for health."""
    made = [
        *(
            ManifestConfig(resource_identifier=identifier(each), feedback_rules=[WELL_KNOWN])
            for each in manifests
            if is_workload(each)
        ),
        *(
            # Namespaces that were there before stay as they are.
            ManifestConfig(
                resource_identifier=identifier(each),
                update_strategy=UpdateStrategy(type="CreateOnly"),
            )
            for each in manifests
            if each == namespace_manifest(identity(each)[3])
        ),
    ]
    for each in written:
        same = [old for old in made if old.resource_identifier == each.resource_identifier]
        if not same:
            made.append(each)
            continue
        rules = [*same[0].feedback_rules]
        rules += [rule for rule in each.feedback_rules if rule not in rules]
        merged = msgspec.structs.replace(each, feedback_rules=rules)
        made[made.index(same[0])] = merged
    return made


def divided(
    manifests: Sequence[Object], existing: Sequence[Object], prefix: str
) -> dict[int, list[Object]]:
    """Manifests by the number of their work."""
    known = {
        identity(manifest): index
        for each in existing
        if (index := work_index(each, prefix)) is not None
        for manifest in objects(part(part(each, "spec"), "workload").get("manifests"))
    }
    shares: dict[int, list[Object]] = {}
    sizes: dict[int, int] = {}
    seen: set[Identity] = set()
    ordered = sorted(manifests, key=lambda each: identity(each) not in known)
    for manifest in ordered:
        size = len(msgspec.json.encode(manifest))
        if size > LARGEST_MANIFEST:
            raise WorksError(
                f"{title(manifest)} has {size} bytes; a manifest may have {LARGEST_MANIFEST}"
            )
        if identity(manifest) in seen:
            raise WorksError(f"{title(manifest)} is in the template twice")
        seen.add(identity(manifest))
        index = known.get(identity(manifest), 0)
        while not fits(shares.get(index, []), sizes.get(index, 0) + size):
            index += 1
        shares.setdefault(index, []).append(manifest)
        sizes[index] = sizes.get(index, 0) + size
    order = {identity(manifest): position for position, manifest in enumerate(manifests)}
    return {
        index: sorted(share, key=lambda each: order[identity(each)])
        for index, share in shares.items()
    }


def fits(share: Sequence[Object], size: int) -> bool:
    """Whether a work has space for one more manifest."""
    return not share or (len(share) < MOST_MANIFESTS and size <= MOST_BYTES)


def work_index(manifest: Object, prefix: str) -> int | None:
    """The number of a work among those of its add-on."""
    start, _, number = str(manifest["metadata"]["name"]).rpartition("-")
    return int(number) if start == prefix and number.isascii() and number.isdecimal() else None


def surplus(existing: Sequence[Object], wanted: Sequence[Object], prefix: str) -> list[Key]:
    """Works of an add-on that it no longer needs."""
    names = {each["metadata"]["name"] for each in wanted}
    return [
        Key.of(each)
        for each in existing
        if work_index(each, prefix) is not None and each["metadata"]["name"] not in names
    ]


def probed_workloads(manifests: Sequence[Object]) -> list[ResourceIdentifier]:
    """Workloads whose state decides whether an add-on is available."""
    return [
        identifier(each)
        for each in manifests
        if is_workload(each)
        and not (each["kind"] in WORKLOADS and part(each, "spec").get("replicas") == 0)
    ]
