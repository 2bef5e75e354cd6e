"""Which objects of a set must wait until a webhook of the same set answers.

A webhook looks at the kinds that its rules name, or, for conversion, at those of its CRD. Knative
fills in its rules only when it runs, so those that are known beforehand stand in a table. Only
custom resources wait: what a webhook itself is made of cannot wait for it.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from knfleet.api.meta import Key, Object
from knfleet.apply.desired import Desired
from knfleet.apply.manifest_fields import items, part
from knfleet.apply.refs import CRD, WEBHOOK_CONFIGURATIONS, GroupKind

KNOWN = frozenset({GroupKind("networking.internal.knative.dev", "Certificate")})
WRITES = frozenset({"CREATE", "UPDATE", "*"})


class Webhooks(Struct, frozen=True):
    """The webhooks of a set."""

    services: frozenset[Key] = frozenset()
    """The Services behind them."""
    looks_at: frozenset[tuple[str, str]] = frozenset()
    """Group and plural of what they look at; a star stands for all."""

    def gates(self, desired: Desired) -> bool:
        """Whether an object must wait until the webhooks answer."""
        if not self.services or not desired.ref.group_kind.is_custom:
            return False
        if desired.ref.group_kind in KNOWN:
            return True
        group, plural = desired.resource.group, desired.resource.plural
        wanted = {(group, plural), (group, "*"), ("*", plural), ("*", "*"), (group, "*/*")}
        return not wanted.isdisjoint(self.looks_at)


def webhooks_of(objects: Iterable[Desired]) -> Webhooks:
    """The webhooks that some objects configure."""
    services: set[Key] = set()
    looks_at: set[tuple[str, str]] = set()
    for desired in objects:
        if desired.ref.group_kind in WEBHOOK_CONFIGURATIONS:
            for webhook in items(desired.manifest, "webhooks"):
                services |= set(service_of(webhook))
                looks_at |= set(ruled(webhook))
        elif desired.ref.group_kind == CRD:
            conversion = part(desired.manifest, "spec", "conversion", "webhook")
            behind = set(service_of(conversion))
            if behind:
                spec = desired.manifest["spec"]
                services |= behind
                looks_at.add((spec["group"], spec["names"]["plural"]))
    return Webhooks(frozenset(services), frozenset(looks_at))


def service_of(webhook: Object) -> Iterator[Key]:
    """The Service that a webhook is called through, if it is not a plain URL."""
    service = part(webhook, "clientConfig", "service")
    if service:
        yield Key(service["namespace"], service["name"])


def ruled(webhook: Object) -> Iterator[tuple[str, str]]:
    """Group and plural of everything whose writing a webhook looks at."""
    for rule in items(webhook, "rules"):
        if WRITES.isdisjoint(rule.get("operations") or ()):
            continue
        for group in rule.get("apiGroups") or ():
            for plural in rule.get("resources") or ():
                yield group, plural
