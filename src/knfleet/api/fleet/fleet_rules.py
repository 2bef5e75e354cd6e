"""What values of a KnativeFleet must be like, in the words of a CRD: patterns and CEL rules."""

from typing import Any

from knfleet.api.fleet.fleet_names import REMAINING_WAVE

RULES = "x-kubernetes-validations"
POSITIVE_SHARE = r"^((100|[1-9][0-9]?)%|[1-9][0-9]{0,8})$"
DURATION = r"^(0|([0-9]{1,9}(\.[0-9]{1,3})?(ms|s|m|h)){1,4})$"
DEADLINE = r"^(None|([0-9]{1,9}(\.[0-9]{1,3})?(ms|s|m|h)){1,4})$"
URL = r"^https?://[^/@\s]+(/\S*)?$"
NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"
NO_DEADLINE = "None"
NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
IMMUTABLE: dict[str, Any] = {RULES: [{"rule": "self == oldSelf", "message": "it is immutable"}]}
BY_NAME: dict[str, Any] = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}


def exactly_one(*fields: str) -> dict[str, str]:
    """A CEL rule: one of some fields is there."""
    count = " + ".join(f"(has(self.{field}) ? 1 : 0)" for field in fields)
    return {"rule": f"{count} == 1", "message": f"exactly one of {', '.join(fields)} is needed"}


SPEC_RULES = [
    {
        "rule": "has(self.spec.serving) || has(self.spec.eventing)",
        "fieldPath": ".spec",
        "message": "at least one of serving and eventing is needed",
    },
    {
        "rule": (
            "!has(self.spec.overrides) || self.spec.overrides.all(o,"
            " (!has(o.serving) || has(self.spec.serving))"
            " && (!has(o.eventing) || has(self.spec.eventing))"
            " && (has(o.serving) || has(o.eventing)))"
        ),
        "fieldPath": ".spec.overrides",
        "message": "an override needs serving or eventing, and the fleet must have the same",
    },
    {
        "rule": (
            "!has(self.spec.strategy) || !has(self.spec.strategy.waves)"
            " || self.spec.strategy.waves.all(w,"
            " (has(w.selector) ? 1 : 0) + (has(w.names) ? 1 : 0)"
            " + (has(w.decisionGroups) ? 1 : 0) == 1)"
        ),
        "fieldPath": ".spec.strategy.waves",
        "message": "a wave needs exactly one of selector, names and decisionGroups",
    },
    {
        "rule": (
            "has(self.spec.clusters.placementRef) || !has(self.spec.strategy)"
            " || !has(self.spec.strategy.waves)"
            " || self.spec.strategy.waves.all(w, !has(w.decisionGroups))"
        ),
        "fieldPath": ".spec.strategy.waves",
        "message": "decisionGroups need clusters.placementRef",
    },
    {
        "rule": (
            "!has(self.spec.strategy) || !has(self.spec.strategy.waves)"
            f" || self.spec.strategy.waves.all(w, w.name != '{REMAINING_WAVE}')"
        ),
        "fieldPath": ".spec.strategy.waves",
        "message": f"{REMAINING_WAVE} is the wave of clusters that are in no other one",
    },
    {
        "rule": (
            "!has(self.spec.strategy) || !has(self.spec.strategy.gates)"
            " || self.spec.strategy.gates.all(g, (has(g.prometheus) ? 1 : 0)"
            " + (has(g.webhook) ? 1 : 0) + (has(g.verify) ? 1 : 0) == 1)"
        ),
        "fieldPath": ".spec.strategy.gates",
        "message": "a gate needs exactly one of prometheus, webhook and verify",
    },
    {
        "rule": "self.metadata.name.size() <= 63",
        "fieldPath": ".metadata.name",
        "message": "the name has at most 63 characters, because it is the value of a label",
    },
]
"""CEL rules for the object as a whole."""
