"""What typed resources are written with: descriptions, open parts, and decoding.

The structs of this package are read in two ways: to decode what an API server stores, and to
generate the CRDs that make it store that. An empty default (`""`, `{}`, `[]`, `None`) means the
same as an absent field, so a CRD carries no default for it.
"""

from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from knfleet.api.meta import Key, Object


def doc(text: str, **extra: Any) -> Meta:
    """The description of a field, and what its CRD schema says besides."""
    return Meta(description=text, extra_json_schema=extra or None)


Free = Annotated[Object, Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})]
"""A part that stays a plain manifest, because Kubernetes itself defines and checks it."""

IntOrString = Annotated[int | str, Meta(extra_json_schema={"x-kubernetes-int-or-string": True})]
"""A number, a percentage or a quantity, as Kubernetes allows it."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, extra_json_schema={"format": "int32"})]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1, extra_json_schema={"format": "int32"})]
Port = Annotated[int, Meta(ge=0, le=65535, extra_json_schema={"format": "int32"})]
Replicas = Annotated[int, Meta(ge=0, le=1000, extra_json_schema={"format": "int32"})]


class ObjectMeta(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The part of an object's metadata that we read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)

    @property
    def deleting(self) -> bool:
        """Whether the object waits only for its finalizers."""
        return bool(self.deletion_timestamp)


class DecodeError(ValueError):
    """An object that the API server let through, and that we cannot read."""

    def __init__(self, kind: str, key: Key, problem: str) -> None:
        super().__init__(f"{kind} {key}: {problem}")
        self.kind = kind
        self.key = key
        self.problem = problem
        """Field and what is wrong with it."""


T = TypeVar("T", bound=Struct)


def decode(manifest: Object, into: type[T]) -> T:
    """A manifest as a typed value; fields that we do not know are passed over, nulls are absent.

    Raises DecodeError, which names the object and the field.
    """
    try:
        return msgspec.convert(without_nulls(manifest), into)
    except msgspec.ValidationError as error:
        raise DecodeError(into.__name__, loose_key(manifest), in_words(str(error))) from error
    except RecursionError as error:
        raise DecodeError(into.__name__, loose_key(manifest), "nested too deep") from error


def without_nulls(value: Any) -> Any:
    """The value without those fields that are null, as an API server stores it."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: without_nulls(field) for name, field in fields.items() if field is not None}
    if isinstance(value, list):
        return [without_nulls(element) for element in cast("list[Any]", value)]
    return value


def loose_key(manifest: Object) -> Key:
    """The key of a manifest that may not even have one."""
    meta = manifest.get("metadata")
    fields = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
    return Key(str(fields.get("namespace", "")), str(fields.get("name", "")))


def in_words(problem: str) -> str:
    """msgspec's message with the field first, named as in the manifest."""
    text, marker, path = problem.rpartition(" - at `$")
    if not marker:
        return problem
    field = path.rstrip("`").lstrip(".")
    return f"{field}: {text}" if field else text
