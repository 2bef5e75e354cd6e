"""Entries of ConfigMaps."""

from knfleet.api.knative.resources import KnativeSpec
from knfleet.render.drafts import Draft, merge


def configure(draft: Draft, spec: KnativeSpec) -> None:
    """Write the entries that `spec.config` gives for the ConfigMap; others stay as they are."""
    if draft.kind == "ConfigMap" and draft.group == "":
        entries = spec.config_map(draft.released)
        if entries:
            merge(draft.section("data"), entries)
