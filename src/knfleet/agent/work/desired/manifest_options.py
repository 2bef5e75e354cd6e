"""What a work's manifestConfigs and deleteOption say about one object."""

from collections.abc import Iterable

from msgspec import Struct

from knfleet.agent.work.desired.manifests import ObjectRef
from knfleet.api.work.manifestwork import (
    ConditionRule,
    DeleteOption,
    FeedbackRule,
    ManifestConfig,
    ResourceIdentifier,
    UpdateStrategy,
)

UPDATE = UpdateStrategy()


class ManifestOptions(Struct, frozen=True):
    """How one object is written and observed."""

    strategy: UpdateStrategy = UPDATE
    feedback: tuple[FeedbackRule, ...] = ()
    conditions: tuple[ConditionRule, ...] = ()


def options_for(ref: ObjectRef, configs: Iterable[ManifestConfig]) -> ManifestOptions:
    """All configs that match an object, merged: rules add up, the last strategy counts."""
    strategy, feedback = UPDATE, list[FeedbackRule]()
    conditions: dict[str, ConditionRule] = {}
    for config in configs:
        if not identifies(config.resource_identifier, ref):
            continue
        feedback += config.feedback_rules
        conditions |= {rule.condition: rule for rule in config.condition_rules}
        strategy = config.update_strategy or strategy
    return ManifestOptions(strategy, tuple(feedback), tuple(conditions.values()))


def identifies(identifier: ResourceIdentifier, ref: ObjectRef) -> bool:
    """Whether an identifier means an object; `*` in name and namespace stands for any text."""
    return (
        identifier.group == ref.group
        and identifier.resource == ref.resource
        and matches(identifier.name, ref.name)
        and matches(identifier.namespace, ref.namespace)
    )


def matches(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern with `*` describes."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    if not text.startswith(first):
        return False
    at, last = len(first), rest.pop()
    for part in rest:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(text) - len(last) >= at and text.endswith(last)


def is_orphaned(ref: ObjectRef, option: DeleteOption | None) -> bool:
    """Whether an object stays when the work goes."""
    if option is None or option.propagation_policy == "Foreground":
        return False
    if option.propagation_policy == "Orphan":
        return True
    rules = option.selectively_orphans.orphaning_rules if option.selectively_orphans else []
    return any(
        (rule.group, rule.resource, rule.namespace, rule.name)
        == (ref.group, ref.resource, ref.namespace, ref.name)
        for rule in rules
    )
