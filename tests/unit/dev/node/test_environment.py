"""The environment of real containers."""

from collections.abc import Mapping

import pytest
from msgspec import Struct

from knfleet.api.meta import Object
from knfleet.dev.node.containers.container_environment import (
    ReferenceMissing,
    RuntimeFields,
    environment,
)
from tests.unit.dev.node.manifests import pod

FACTS = RuntimeFields("198.19.1.1", "198.19.255.254")


class Store(Struct, frozen=True):
    """ConfigMaps and Secrets of a test."""

    config_maps: dict[str, dict[str, bytes]] = {}
    secrets: dict[str, dict[str, bytes]] = {}

    def config_map(self, name: str) -> Mapping[str, bytes] | None:
        """One ConfigMap."""
        return self.config_maps.get(name)

    def secret(self, name: str) -> Mapping[str, bytes] | None:
        """One Secret."""
        return self.secrets.get(name)


STORE = Store({"app": {"mode": b"fast", "bad key": b"x"}}, {"login": {"user": b"me"}})


def variables(*entries: Object, store: Store = STORE, **container: object) -> dict[str, str]:
    """The environment of a container with these entries."""
    return environment({"name": "main", "env": list(entries), **container}, pod(), FACTS, store)


def ref(kind: str, **source: object) -> Object:
    """An entry with a reference, for the variable X or another."""
    return {"name": source.pop("variable", "X"), "valueFrom": {kind: source}}


def test_values_may_use_those_before_them() -> None:
    """Later ones stay as they are written."""
    first = {"name": "A", "value": "1"}
    second = {"name": "B", "value": "$(A)$(C)"}

    assert variables(first, second, {"name": "C"}) == {"A": "1", "B": "1$(C)", "C": ""}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "web-1"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['tier']", "front"),
        ("metadata.annotations['note']", 'say "hi"'),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "shopper"),
        ("status.podIP", "198.19.1.1"),
        ("status.hostIP", "198.19.255.254"),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    """All that the downward API has for variables."""
    assert variables(ref("fieldRef", fieldPath=path)) == {"X": value}


def test_keys_of_config_maps_and_secrets() -> None:
    """One key, or all of them with a prefix; keys that cannot be names are left out."""
    entries = [
        ref("configMapKeyRef", variable="M", name="app", key="mode"),
        ref("secretKeyRef", variable="U", name="login", key="user"),
    ]
    sources = [{"prefix": "APP_", "configMapRef": {"name": "app"}}]

    assert variables(*entries, envFrom=sources) == {"APP_mode": "fast", "M": "fast", "U": "me"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (ref("configMapKeyRef", name="none", key="x"), 'configmap "none" not found'),
        (ref("secretKeyRef", name="none", key="x"), 'secret "none" not found'),
        (ref("secretKeyRef", name="login", key="x"), 'couldn\'t find key x in secret "login"'),
        (ref("fieldRef", fieldPath="status.phase"), "unsupported fieldPath status.phase"),
    ],
)
def test_what_is_missing_is_named(entry: Object, message: str) -> None:
    """In the kubelet's words."""
    with pytest.raises(ReferenceMissing, match=message):
        variables(entry)


def test_what_is_optional_may_be_missing() -> None:
    """The variable is not there, rather than empty."""
    optional = [
        ref("configMapKeyRef", name="none", key="x", optional=True),
        ref("secretKeyRef", name="login", key="x", optional=True),
    ]
    sources = [{"secretRef": {"name": "none", "optional": True}}]

    assert variables(*optional, envFrom=sources) == {}


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", None, "2"),
        ("limits.cpu", "1m", "1500"),
        ("requests.memory", "1Mi", "64"),
        ("limits.memory", None, "134217728"),
    ],
)
def test_resources_in_units_of_the_divisor(resource: str, divisor: str | None, value: str) -> None:
    """Rounded up to whole units."""
    resources = {
        "limits": {"cpu": "1500m", "memory": "128Mi"},
        "requests": {"memory": "64Mi"},
    }
    entry = ref("resourceFieldRef", resource=resource, divisor=divisor)

    assert variables(entry, resources=resources) == {"X": value}
