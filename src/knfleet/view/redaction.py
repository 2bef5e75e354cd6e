"""Takes secrets out of manifests and logs, so that they can be given to others. Pure.

Texts are cleaned by `kube.secret_text`; of a Secret nothing stays but its name and the names of its
entries.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from knfleet.api.core import SECRETS
from knfleet.api.meta import Object
from knfleet.apply.manifest_fields import part
from knfleet.kube.secret_text import CLEARLY_SENSITIVE, GONE, clean, is_sensitive

LEFT_OUT = ("managedFields", "binaryData", "kubectl.kubernetes.io/last-applied-configuration")
VARIABLES = ("env", "envVars")
PLAIN_VARIABLES = frozenset(
    {
        "CONFIG_LOGGING_NAME",
        "CONFIG_OBSERVABILITY_NAME",
        "KO_DATA_PATH",
        "KUBERNETES_MIN_VERSION",
        "METRICS_DOMAIN",
        "POD_NAME",
        "SYSTEM_NAMESPACE",
        "XDG_CACHE_HOME",
    }
)
"""Environment variables whose values are known to be harmless; all others are taken out."""

FLAG = re.compile(r"--?[A-Za-z][\w.-]*")


def redacted(manifest: Object) -> Object:
    """A manifest that holds no secret; of a Secret, names alone."""
    if manifest.get("kind") == SECRETS.kind:
        return names_of_secret(manifest)
    return cast("Object", without_secrets(manifest))


def names_of_secret(manifest: Object) -> Object:
    """The name of a Secret, its type, and the names of its entries."""
    meta = part(manifest, "metadata")
    keys = sorted({*part(manifest, "data"), *part(manifest, "stringData")})
    return {
        "apiVersion": "v1",
        "kind": SECRETS.kind,
        "metadata": {name: meta[name] for name in ("namespace", "name") if name in meta},
        "type": manifest.get("type", ""),
        "keys": keys,
    }


def without_secrets(value: Any, name: str = "") -> Any:
    """A value without secrets; its name may say that it is one."""
    if isinstance(value, dict):
        return fields_without_secrets(cast("Object", value), name)
    if isinstance(value, list):
        return list_without_secrets(cast("list[Any]", value), name)
    if not isinstance(value, str):
        return value
    return GONE if value and is_sensitive(name) else clean(value)


def fields_without_secrets(fields: Object, name: str) -> Object:
    """The fields of an object, without those that hold copies of others or bare bytes."""
    return {
        # A name may be a secret itself, where a map has free keys.
        clean(each): GONE
        if is_secret_pair(fields, each, name)
        else without_secrets(value, name if is_sensitive(name, CLEARLY_SENSITIVE) else each)
        for each, value in fields.items()
        if each not in LEFT_OUT
    }


def is_secret_pair(fields: Object, field: str, name: str) -> bool:
    """Whether a field is the value of a variable, or of something with a secret name beside it."""
    if field != "value" or not isinstance(fields.get("name"), str):
        return False
    called = str(fields["name"])
    return is_sensitive(called) or (name in VARIABLES and called not in PLAIN_VARIABLES)


def list_without_secrets(values: Sequence[Any], name: str) -> list[Any]:
    """The elements of a list; what follows a flag with a secret name is its value."""
    found: list[Any] = []
    follows = False
    for value in values:
        found.append(GONE if follows and isinstance(value, str) else without_secrets(value, name))
        is_flag = isinstance(value, str) and FLAG.fullmatch(value) is not None
        follows = is_flag and is_sensitive(str(value))
    return found


def clean_log(text: str) -> str:
    """A log without secrets; lines that are JSON are looked at field by field."""
    return clean("\n".join(clean_line(line) for line in text.split("\n")))


def clean_line(line: str) -> str:
    """A line of a log."""
    if not line.startswith("{"):
        return line
    try:
        fields = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return line
    return msgspec.json.encode(without_secrets(fields)).decode()
