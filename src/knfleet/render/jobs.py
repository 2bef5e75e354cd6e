"""Jobs that run once for each version."""

from knfleet.api.knative.resources import Component
from knfleet.render.drafts import Draft

INJECT = "sidecar.istio.io/inject"


def name_job(draft: Draft, component: Component, version: str) -> None:
    """Name a Job after component and version, and keep Istio's sidecar, which never ends, out."""
    if draft.kind != "Job" or draft.group != "batch":
        return
    name = draft.meta.get("name")
    suffix = f"{component}-{version}"
    if name:
        draft.meta["name"] = f"{name}-{suffix}"
    else:
        draft.meta["name"] = f"{draft.meta['generateName']}{suffix}"
    labels = draft.section("spec", "template", "metadata", "labels")
    if not labels.get(INJECT):
        labels[INJECT] = "false"
