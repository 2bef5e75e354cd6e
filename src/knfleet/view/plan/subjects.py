"""Which custom resources are selected: those of a file, one by its name, or all."""

import asyncio
from collections.abc import Iterable

from knfleet.api.meta import Key, Object
from knfleet.apply.act.refusals import reason_of
from knfleet.apply.change_set import FailureKind
from knfleet.apply.manifest_fields import part
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import NotFound
from knfleet.operator.kinds import KnativeKind
from knfleet.view.name_lookup import KINDS as KIND_WORDS
from knfleet.view.plan.preview import KINDS, PlanSubject
from knfleet.view.suggestions import meant

OWN_SECTIONS = ("labels", "annotations")
NOT_SERVED = (
    "the hub does not know the kind {kind}; make it a hub with `knfleet init`, or install the"
    " definitions with `knfleet manifests --crds | kubectl apply -f -`"
)


class SubjectError(Exception):
    """It is not clear which custom resource is meant, or there is none; says what to do."""


async def of_file(hub: Client, manifests: Iterable[Object], source: str) -> list[PlanSubject]:
    """The custom resources in a file; other objects are passed over."""
    found: list[Object] = []
    for manifest in manifests:
        kind = KINDS.get(str(manifest.get("kind", "")))
        if kind is not None and manifest.get("apiVersion") == kind.resource.api_version:
            found.append(manifest)
    if not found:
        raise SubjectError(
            f"{source}: has no KnativeServing or KnativeEventing of operator.knative.dev/v1beta1"
        )
    for manifest in found:
        if not part(manifest, "metadata").get("name"):
            raise SubjectError(f"{source}: a {manifest['kind']} has no metadata.name")
    return list(await asyncio.gather(*(of_manifest(hub, each) for each in found)))


async def of_manifest(hub: Client, manifest: Object) -> PlanSubject:
    """A custom resource as given, beside the existing one."""
    kind = KINDS[manifest["kind"]]
    meta = {"namespace": hub.namespace, **manifest["metadata"]}
    manifest = {**manifest, "metadata": meta}
    try:
        live = await hub.get(kind.resource, meta["name"], meta["namespace"])
    except NotFound as error:
        if reason_of(error) == FailureKind.UNKNOWN_KIND:
            raise SubjectError(NOT_SERVED.format(kind=kind.resource.kind)) from error
        return PlanSubject(kind, without_status(manifest))
    return PlanSubject(kind, as_of(live, manifest), live)


def without_status(manifest: Object) -> Object:
    """A custom resource that is to be made."""
    return {name: value for name, value in manifest.items() if name != "status"}


def as_of(live: Object, wanted: Object) -> Object:
    """A custom resource with another spec; its labels and annotations are added to."""
    meta = dict(live["metadata"])
    for section in OWN_SECTIONS:
        more = part(wanted, "metadata", section)
        if more:
            meta[section] = {**part(meta, section), **more}
    return {**live, "metadata": meta, "spec": wanted.get("spec") or {}}


def guarded_patch_of(subject: PlanSubject) -> list[Object]:
    """The JSON patch that makes a custom resource so, unless a client changed it meanwhile."""
    meta = part(subject.live or {}, "metadata")
    tests = [
        {"op": "test", "path": f"/metadata/{name}", "value": meta.get(name)}
        for name in ("uid", "generation")
    ]
    return [*tests, *patch_of(subject)]


def patch_of(subject: PlanSubject) -> list[Object]:
    """The JSON patch that makes a custom resource so."""
    live, wanted = subject.live, subject.manifest
    assert live is not None
    meta = part(live, "metadata")
    steps: list[Object] = []
    for section in OWN_SECTIONS:
        before, after = part(meta, section), part(wanted, "metadata", section)
        if not before and after:
            steps.append({"op": "add", "path": f"/metadata/{section}", "value": after})
            continue
        for name in sorted(after):
            if after[name] != before.get(name):
                escaped = name.replace("~", "~0").replace("/", "~1")
                path = f"/metadata/{section}/{escaped}"
                steps.append({"op": "add", "path": path, "value": after[name]})
    return [*steps, {"op": "add", "path": "/spec", "value": part(wanted, "spec")}]


def written(subject: PlanSubject) -> Object:
    """A custom resource as a person would write it: what is wanted, and nothing of the server."""
    meta = subject.manifest["metadata"]
    names = ("name", "namespace", *OWN_SECTIONS)
    resource = subject.kind.resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {name: meta[name] for name in names if meta.get(name)},
        "spec": subject.manifest.get("spec") or {},
    }


def with_version(subject: PlanSubject, version: str) -> PlanSubject:
    """The same custom resource, which asks for another version."""
    spec = {**part(subject.manifest, "spec"), "version": version}
    return PlanSubject(subject.kind, {**subject.manifest, "spec": spec}, subject.live)


async def every(hub: Client, namespace: str = "") -> list[PlanSubject]:
    """All custom resources of a hub, or of one namespace, as they are."""
    lists = await asyncio.gather(*(of_kind(hub, kind, namespace) for kind in KINDS.values()))
    return sorted((each for part_ in lists for each in part_), key=order)


async def of_kind(hub: Client, kind: KnativeKind, namespace: str) -> list[PlanSubject]:
    """All custom resources of one kind; none where the hub does not know it."""
    try:
        listing = await hub.list(kind.resource, namespace)
    except NotFound:
        return []
    return [PlanSubject(kind, each, each) for each in listing.items]


def order(subject: PlanSubject) -> tuple[Key, str]:
    """By namespace and name."""
    return Key.of(subject.manifest), subject.kind.resource.kind


async def by_name(hub: Client, name: str, namespace: str = "") -> PlanSubject:
    """The one custom resource that a name means; raises `SubjectError`."""
    known = await every(hub, namespace)
    chosen = choose(known, name)
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        names = ", ".join(map(title, chosen))
        raise SubjectError(
            f"{name} can mean {len(chosen)} custom resources: {names}; choose one by --namespace,"
            f" or by the kind, as {chosen[0].kind.resource.kind.lower()}/{name}"
        )
    where = f" in the namespace {namespace}" if namespace else ""
    keys = [Key.of(each.manifest) for each in known]
    names = [each for key in keys for each in (key.name, str(key))]
    raise SubjectError(
        f"there is no KnativeServing or KnativeEventing {name}{where}; {meant(name, names)}"
    )


def choose(known: Iterable[PlanSubject], name: str) -> list[PlanSubject]:
    """Those that a name may mean: NAME, NAMESPACE/NAME, KIND/NAME, or all three."""
    return [each for each in known if name in names_of(each, name)]


def names_of(subject: PlanSubject, name: str) -> set[str]:
    """All that a custom resource may be called; its kind in the spelling that is looked for."""
    key = Key.of(subject.manifest)
    names = {key.name, str(key)}
    first = name.partition("/")[0]
    if KIND_WORDS.get(first.lower()) == subject.kind.resource.kind:
        names |= {f"{first}/{each}" for each in list(names)}
    return names


def title(subject: PlanSubject) -> str:
    """A custom resource in words."""
    return f"{subject.kind.resource.kind} {Key.of(subject.manifest)}"
