"""Words in the release that mean the release's own namespace.

Upstream moves objects, but leaves these: certificates are made for addresses that are not in use,
Kafka's controller looks for its data plane elsewhere, webhooks select pods of a namespace that is
not there. They are changed only where the custom resource lives outside the release's namespace.
"""

import re
from collections.abc import Callable
from typing import Any, cast

from knfleet.render.drafts import Draft, as_map
from knfleet.render.namespace import NAME_LABEL
from knfleet.render.overrides.pod_templates import all_containers, environment, has_pods

Names = frozenset[str]


def release_namespaces(drafts: list[Draft], home: str) -> Names:
    """The namespaces that the release thinks it has, beside its home."""
    own = {d.released for d in drafts if d.kind == "Namespace" and d.group == ""}
    return frozenset({home, *own})


def follow(draft: Draft, old: Names, to: str) -> None:
    """Change what means one of the old namespaces."""
    if has_pods(draft):
        follow_environment(draft, old, to)
    change = CHANGES.get((draft.group, draft.kind))
    if change is not None:
        change(draft, old, to)


def follow_environment(draft: Draft, old: Names, to: str) -> None:
    """Variables called `…NAMESPACE` that hold an old namespace."""
    for container in all_containers(draft):
        for variable in environment(draft, container):
            name = str(variable.get("name", ""))
            if name.endswith("NAMESPACE") and variable.get("value") in old:
                variable["value"] = to


def follow_selectors(draft: Draft, old: Names, to: str) -> None:
    """Webhooks that select namespaces by name."""
    for webhook in draft.entries("webhooks"):
        selector = as_map(webhook.get("namespaceSelector"))
        labels = as_map(selector.get("matchLabels"))
        if labels.get(NAME_LABEL) in old:
            labels[NAME_LABEL] = to
        for expression in draft.maps(selector.get("matchExpressions"), ("matchExpressions",)):
            if expression.get("key") == NAME_LABEL:
                expression["values"] = [
                    to if value in old else value for value in strings(expression.get("values"))
                ]


def follow_certificate(draft: Draft, old: Names, to: str) -> None:
    """Certificates for Services, by the Services' addresses."""
    spec = draft.section("spec")
    if "dnsNames" in spec:
        spec["dnsNames"] = [address(name, old, to) for name in strings(spec["dnsNames"])]


def strings(value: Any) -> list[str]:
    """The strings of what should be a list of them."""
    return [str(entry) for entry in cast("list[Any]", value)] if isinstance(value, list) else []


def address(name: str, old: Names, to: str) -> str:
    """The address of a Service after it has moved."""
    parts = name.split(".")
    if len(parts) > 2 and parts[1] in old and parts[2] == "svc":
        parts[1] = to
    return ".".join(parts)


def follow_broker_defaults(draft: Draft, old: Names, to: str) -> None:
    """The default broker's own configuration, which is in the release's namespace."""
    data = as_map(draft.manifest.get("data"))
    text = data.get("default-br-config")
    if draft.released == "config-br-defaults" and isinstance(text, str):
        choices = "|".join(re.escape(name) for name in sorted(old))
        data["default-br-config"] = re.sub(
            rf"(?m)^([ \t]*namespace:[ \t]*)([\"']?)(?:{choices})\2(?=[ \t]*$)", rf"\g<1>{to}", text
        )


CHANGES: dict[tuple[str, str], Callable[[Draft, Names, str], None]] = {
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): follow_selectors,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): follow_selectors,
    ("cert-manager.io", "Certificate"): follow_certificate,
    ("", "ConfigMap"): follow_broker_defaults,
}
