"""Where the development CA is put."""

from knfleet.api.meta import Key, Object
from knfleet.dev.node.ca_bundles import wanted_changes

OURS = Key("shop", "hook")


def webhook(name: str, **config: object) -> Object:
    """One webhook of a configuration."""
    return {"name": name, "clientConfig": config}


def service(name: str) -> Object:
    """A reference to a Service."""
    return {"namespace": "shop", "name": name}


def changes(manifest: Object) -> list[Object]:
    """The patch for a configuration."""
    return wanted_changes(manifest, lambda key: key == OURS, "NEW")


def test_only_our_services_get_the_bundle() -> None:
    """Not URLs, not the Services of others, and not what has it already."""
    manifest = {
        "webhooks": [
            webhook("a", url="https://127.0.0.1:1"),
            webhook("b", service=service("other"), caBundle="X"),
            webhook("c", service=service("hook"), caBundle="NEW"),
            webhook("d", service=service("hook"), caBundle="OLD"),
            webhook("e", service=service("hook")),
        ]
    }

    assert changes(manifest) == [
        {"op": "test", "path": "/webhooks/3/name", "value": "d"},
        {"op": "add", "path": "/webhooks/3/clientConfig/caBundle", "value": "NEW"},
        {"op": "test", "path": "/webhooks/4/name", "value": "e"},
        {"op": "add", "path": "/webhooks/4/clientConfig/caBundle", "value": "NEW"},
    ]


def test_conversion_webhooks_get_it_too() -> None:
    """Only where conversion is by webhook."""
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {"service": service("hook")}}}

    assert [each["path"] for each in changes({"spec": {"conversion": conversion}})] == [
        "/spec/conversion/strategy",
        "/spec/conversion/webhook/clientConfig/caBundle",
    ]
    assert changes({"spec": {"conversion": {"strategy": "None"}}}) == []
