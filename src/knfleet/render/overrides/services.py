"""Overrides of single Services."""

from knfleet.api.knative.overrides import ServiceOverride
from knfleet.render.drafts import Draft, merge


def override_service(draft: Draft, overrides: list[ServiceOverride]) -> None:
    """Merge labels, annotations and selector into the Service."""
    if draft.kind != "Service" or draft.group != "":
        return
    for override in overrides:
        if override.name == draft.released:
            for path, values in (
                (("metadata", "labels"), override.labels),
                (("metadata", "annotations"), override.annotations),
                (("spec", "selector"), override.selector),
            ):
                if values:
                    merge(draft.section(*path), values)
