"""Structural schemas made from types, and what our CRDs promise."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from knfleet.api.crds.fleet import hub_definitions, spoke_definitions
from knfleet.api.crds.generator import definitions
from knfleet.api.crds.structural import type_schema
from knfleet.api.inventory import ClusterProfile
from knfleet.api.schema import Count, Free, IntOrString, decode, doc


class Inner(Struct):
    """The inside."""

    name: str


class Outer(Struct):
    """The outside."""

    needed: Annotated[Inner, doc("Needed.")]
    maybe: Annotated[
        Inner | None, doc("Maybe.", **{"x-kubernetes-validations": [{"rule": "x"}]})
    ] = None
    choice: Literal["b", "a"] = "a"
    nothing: str = ""
    number: int = 7
    count: Count | None = None
    either: IntOrString | None = None
    free: Free | None = None
    listed: list[Inner] = []
    mapped: dict[str, dict[str, str]] = {}


def test_a_type_becomes_a_structural_schema():
    inner = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }

    assert type_schema(Outer) == {
        "type": "object",
        "description": "The outside.",
        "required": ["needed"],
        "properties": {
            "needed": {**inner, "description": "Needed."},
            "maybe": {
                **inner,
                "description": "Maybe.",
                "x-kubernetes-validations": [{"rule": "x"}],
            },
            "choice": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "nothing": {"type": "string"},
            "number": {"type": "integer", "format": "int64", "default": 7},
            "count": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 2**31 - 1},
            "either": {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
            },
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "listed": {"type": "array", "items": {**inner, "description": "The inside."}},
            "mapped": {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                },
            },
        },
    }


class Vague(Struct):
    """Says too little."""

    anything: Any


class Closed(Struct):
    """Does not say what is in it."""

    something: dict[str, Any]


class Several(Struct):
    """Is one of several things."""

    either: int | list[str]


class Odd(Struct):
    """Uses a word that CRDs do not have."""

    even: Annotated[int, Meta(gt=3)]


@pytest.mark.parametrize("vague", [Vague, Closed, Several, Odd])
def test_what_cannot_be_a_structural_schema_is_refused(vague: type[Struct]):
    with pytest.raises(TypeError, match=vague.__name__):
        type_schema(vague)


def parts(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    """Every part of a schema with its path."""
    found = [(path, schema)]
    for name, part in schema.get("properties", {}).items():
        found += parts(part, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            found += parts(schema[keyword], f"{path}[]")
    return found


def test_every_field_is_described_and_every_number_is_bounded():
    for crd in [*definitions(), *hub_definitions(), *spoke_definitions()]:
        kind = crd["spec"]["names"]["kind"]
        found = [parts(schema, kind) for schema in schemas_of(crd)]
        for path, part in [each for version in found for each in version]:
            if not path.endswith("[]") and ".metadata" not in path:
                assert part.get("description"), path
            if part.get("type") in ("integer", "number"):
                assert part.get("format") in ("int32", "int64"), path


OPEN_PARTS = {
    "ClusterProfile.status.accessProviders[].cluster.extensions[].extension",
    "ClusterProfile.status.credentialProviders[].cluster.extensions[].extension",
}


def test_only_what_others_define_is_open():
    """`kubectl explain` ends at an open part, and typing errors in it are not seen."""
    found = {
        path
        for crd in definitions()
        for path, part in parts(schema_of(crd), crd["spec"]["names"]["kind"])
        if part.get("x-kubernetes-preserve-unknown-fields")
    }

    assert found == OPEN_PARTS


def test_every_definition_can_be_applied_by_any_client():
    """`kubectl apply` without --server-side keeps a copy in an annotation, of 256 KiB at most."""
    for crd in [*definitions(), *hub_definitions(), *spoke_definitions()]:
        assert len(msgspec.json.encode(crd)) < 2**18 * 3 // 4


def schemas_of(crd: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas of all versions of a CRD."""
    return [version["schema"]["openAPIV3Schema"] for version in crd["spec"]["versions"]]


def schema_of(crd: dict[str, Any]) -> dict[str, Any]:
    """The schema of a CRD's only version."""
    (schema,) = schemas_of(crd)
    return schema


def test_kinds_are_named_as_their_users_know_them():
    for crd in definitions():
        names = crd["spec"]["names"]
        assert crd["metadata"]["name"] == f"{names['plural']}.{crd['spec']['group']}"
        assert names["listKind"] == f"{names['kind']}List"
        assert names.keys() == {"kind", "listKind", "plural", "singular"}
        (version,) = crd["spec"]["versions"]
        assert version["subresources"] == {"status": {}}


def test_a_profile_gives_access_in_either_spelling_and_list():
    profile = decode(
        {
            "metadata": {"name": "north", "namespace": "fleet"},
            "spec": {"clusterManager": {"name": "by-hand"}},
            "status": {
                "conditions": [{"type": "ControlPlaneHealthy", "status": "True"}],
                "accessProviders": [
                    {
                        "name": "new",
                        "cluster": {"server": "https://new", "certificateAuthorityData": "Y2E="},
                    }
                ],
                "credentialProviders": [
                    {"name": "new", "cluster": {"server": "https://other"}},
                    {
                        "name": "old",
                        "cluster": {
                            "server": "https://old",
                            "certificate-authority-data": "b2xk",
                            "certificateAuthorityData": "Y2E=",
                            "extensions": [{"name": "e", "extension": {"a": 1}}],
                        },
                    },
                ],
            },
        },
        ClusterProfile,
    )

    new, old = profile.access_provider("new"), profile.access_provider("old")
    assert new is not None
    assert old is not None
    assert new.cluster is not None
    assert old.cluster is not None
    assert (new.cluster.server, new.cluster.authorities) == ("https://new", "Y2E=")
    assert (old.cluster.server, old.cluster.authorities) == ("https://old", "b2xk")
    assert (old.cluster.extension("e"), old.cluster.extension("f")) == ({"a": 1}, None)
    assert profile.access_provider("none") is None
    assert profile.healthy
