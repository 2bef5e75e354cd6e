"""Everything moves into the namespace of the custom resource."""

from collections.abc import Callable
from typing import Any

from knfleet.api.knative.overrides import NamespaceSettings
from knfleet.render.drafts import Draft, as_map, merge
from knfleet.render.scopes import Scopes, is_namespaced

NAME_LABEL = "kubernetes.io/metadata.name"


def move(draft: Draft, to: str, scopes: Scopes) -> None:
    """Put the object, and the Services and accounts that it names, into a namespace."""
    if is_namespaced(draft.group, draft.kind, scopes):
        draft.meta["namespace"] = to
    else:
        draft.meta.pop("namespace", None)
    follow = FOLLOWERS.get(draft.kind)
    if follow is not None:
        follow(draft, to)


def rename(draft: Draft, to: str) -> None:
    """The release's own Namespaces all become the one of the custom resource."""
    if draft.group == "":
        draft.meta["name"] = to
        labels = as_map(draft.meta.get("labels"))
        if NAME_LABEL in labels:
            labels[NAME_LABEL] = to


def move_subjects(draft: Draft, to: str) -> None:
    """Accounts that a binding names are those in the new namespace."""
    for subject in draft.entries("subjects"):
        if "namespace" in subject:
            subject["namespace"] = to


def move_webhooks(draft: Draft, to: str) -> None:
    """Webhooks are answered by the Service in the new namespace."""
    for webhook in draft.entries("webhooks"):
        move_service(webhook.get("clientConfig"), to)


def move_api_service(draft: Draft, to: str) -> None:
    """An aggregated API is answered by the Service in the new namespace."""
    move_service(draft.manifest.get("spec"), to)


def move_conversion(draft: Draft, to: str) -> None:
    """Conversion is answered by the Service in the new namespace."""
    conversion = as_map(as_map(draft.manifest.get("spec")).get("conversion"))
    move_service(as_map(conversion.get("webhook")).get("clientConfig"), to)
    move_service(conversion.get("webhookClientConfig"), to)


def move_service(config: Any, to: str) -> None:
    """Change the namespace of the Service that a client is configured with, if it is."""
    service = as_map(as_map(config).get("service"))
    if "namespace" in service:
        service["namespace"] = to


FOLLOWERS: dict[str, Callable[[Draft, str], None]] = {
    "Namespace": rename,
    "RoleBinding": move_subjects,
    "ClusterRoleBinding": move_subjects,
    "MutatingWebhookConfiguration": move_webhooks,
    "ValidatingWebhookConfiguration": move_webhooks,
    "APIService": move_api_service,
    "CustomResourceDefinition": move_conversion,
}


def decorate(draft: Draft, settings: NamespaceSettings) -> None:
    """Give the Namespace the labels and annotations that the custom resource asks for."""
    if draft.kind != "Namespace" or draft.group != "":
        return
    if settings.labels:
        merge(draft.section("metadata", "labels"), settings.labels)
    if settings.annotations:
        merge(draft.section("metadata", "annotations"), settings.annotations)
