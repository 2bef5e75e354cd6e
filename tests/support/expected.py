"""What must be in a cluster, computed without one."""

from collections.abc import Collection
from pathlib import Path

from knfleet.api.knative.resources import SERVINGS, KnativeServing
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.apply import well_known
from knfleet.apply.manifest_fields import part
from knfleet.apply.refs import Ref
from knfleet.dev.cluster_contents import contents
from knfleet.kube.client.verbs import Client
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.render.pipeline import RenderFacts, render


async def serving_refs(root: Path, cache: Path, **spec: object) -> set[Ref]:
    """The objects of a KnativeServing, by name."""
    manifest: Object = {
        "apiVersion": SERVINGS.api_version,
        "kind": SERVINGS.kind,
        "metadata": {"name": "knative", "namespace": "knative-serving"},
        "spec": spec,
    }
    cr = decode(manifest, KnativeServing)
    bundle = await Releases(root, cache=ParsedCache(cache)).load(cr)
    rendered = render(bundle.objects(), cr, RenderFacts(version=bundle.version))
    return {Ref.of(each) for each in rendered.objects}


async def members(client: Client) -> dict[Ref, Object]:
    """All objects in a cluster that we applied.

    Endpoints copy the labels of Services, and ReplicaSets the annotations of Deployments.
    """
    found = await contents(client)
    return {
        Ref(each.resource.group, each.resource.kind, each.key.namespace, each.key.name): item
        for each, item in found.items()
        if well_known.APPLIED_HASH in part(item, "metadata", "annotations")
        and well_known.PART_OF in part(item, "metadata", "labels")
    }


def difference(found: Collection[Ref], wanted: Collection[Ref]) -> str:
    """How two sets of objects differ, for a message; empty when they do not."""
    lost = sorted(map(str, set(wanted) - set(found)))
    extra = sorted(map(str, set(found) - set(wanted)))
    return "; ".join(
        f"{what}: {', '.join(which)}" for what, which in (("lost", lost), ("left", extra)) if which
    )
