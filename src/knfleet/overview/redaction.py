"""Takes secrets out of manifests and texts, so that they can be handed to somebody else. Pure.

Names tell more than values: what a field, a setting, a flag or a variable is called decides first,
then the form of the value (keys and certificates, tokens, kubeconfigs, passwords in addresses).
When in doubt it is taken out; of a Secret nothing stays but its name and the names of its entries.
"""

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from knfleet.api.core import SECRETS
from knfleet.api.meta import Object
from knfleet.apply.parts import part

GONE = "<redacted>"
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

CLEAR_ENDINGS = (
    r"passw(?:or)?d|passphrase|pass|pwd|htpasswd|token|auth|authorization|cookie"
    r"|(?:api|access|secret|private|encryption|client|tls|ssh|signing|master|session|shared"
    r"|account|storage)-?key|key-?data|certificate-?data|authority-?data|ca-?bundle"
    r"|dockerconfigjson|dockercfg|dsn|connection-?string|\.key|\.crt|\.pem|\.p12|\.pfx|\.jks"
)
"""Names of secrets wherever they are written."""
ENDINGS = rf"{CLEAR_ENDINGS}|secret|credential|kubeconfig"
"""Those and words that stand before a colon in sentences, too."""
SENSITIVE = re.compile(rf"(?:{ENDINGS})s?$")
"""Names, in lower case with dashes for underscores, whose values are secret."""
CLEARLY_SENSITIVE = re.compile(rf"(?:{CLEAR_ENDINGS})s?$")
"""Names below which nothing is harmless; below `secret` there are often references."""
FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
SECRET_WORD = r"[\w.-]{0,128}(?:" + ENDINGS.replace("-?", "[-_]?") + r")s?"
CLEAR_WORD = r"[\w.-]{0,128}(?:" + CLEAR_ENDINGS.replace("-?", "[-_]?") + r")s?"
# Only from the beginning of a word, so that a long one is not looked through again and again.
NAMED, CLEARLY_NAMED = rf"(?<![\w.-]){SECRET_WORD}", rf"(?<![\w.-]){CLEAR_WORD}"
QUOTE = r"\\*[\"']"

PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # Keys and certificates, whole or cut off, with real or written line ends.
    (re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL), GONE),
    # A YAML block below a secret name.
    (
        re.compile(rf"(?im)^([ \t]*{NAMED}:[ \t]*)[|>][-+0-9]*[ \t]*\n(?:[ \t]+.*\n?)+"),
        rf"\1{GONE}\n",
    ),
    # Passwords in addresses.
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@\"']+@"), rf"\1{GONE}@"),
    # Credentials of HTTP.
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {GONE}"),
    # name: "value", name='value', also inside of JSON that is text itself.
    (
        re.compile(rf"(?i)({NAMED}(?:{QUOTE})?\s*[:=]\s*)({QUOTE})(?:(?!\2).)*\2", re.DOTALL),
        rf"\1\2{GONE}\2",
    ),
    # The same, cut off before its end.
    (
        re.compile(rf"(?i)({NAMED}(?:{QUOTE})?\s*[:=]\s*{QUOTE})(?!{GONE})[^\n]+"),
        rf"\1{GONE}",
    ),
    # name: value to the end of its line, or in a sentence to the next pause; name=value to a gap.
    (
        re.compile(rf"(?im)^([ \t]*(?:- )?{NAMED}:[ \t]+)(?!{GONE})[^\s\"'\\\[{{][^\n]*"),
        rf"\1{GONE}",
    ),
    (
        re.compile(rf"(?i)({CLEARLY_NAMED}:[ \t]+)(?!{GONE})[^\s\"'\\\[{{][^\n,;]*"),
        rf"\1{GONE}",
    ),
    (re.compile(rf"(?i)({NAMED}=)(?!{GONE})[^\s\"'\\&,;]+"), rf"\1{GONE}"),
    (re.compile(rf"(?i)(?<![\w.-])(--?{SECRET_WORD}[ \t]+)(?!{GONE})[^\s\"'-]\S*"), rf"\1{GONE}"),
    # A flag and its value as elements of a list that is text.
    (re.compile(rf"(?i)({QUOTE}--?{SECRET_WORD}{QUOTE}\s*,\s*{QUOTE})[^\"']*"), rf"\1{GONE}"),
    # Signed addresses.
    (
        re.compile(r"(?i)([?&](?:sig|signature|key|code|auth|x-amz-[a-z-]+)=)[^&\s\"']+"),
        rf"\1{GONE}",
    ),
    # Tokens by their form: JWT (also in base64), kubeadm's, those of clouds and code hosts.
    (re.compile(r"\b(?:eyJ|ZXlK)[A-Za-z0-9_-]{8,}[A-Za-z0-9._=+/-]*"), GONE),
    (re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"), GONE),
    (
        re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bxox[a-z]-[\w-]+"),
        GONE,
    ),
    # PEM and kubeconfigs in base64.
    (re.compile(r"(?:LS0tLS1CRUdJTi|YXBpVmVyc2lvbj|eyJhcGlWZXJzaW9u)[A-Za-z0-9+/=\s]*"), GONE),
    # Long values without any structure; ids of our own sets are known to be harmless.
    (
        re.compile(
            r"(?<![A-Za-z0-9+/_=-])(?!applyset-)(?=[A-Za-z0-9+/_-]*[A-Z])(?=[A-Za-z0-9+/_-]*[a-z])"
            r"(?=[A-Za-z0-9+/_-]*[0-9])[A-Za-z0-9+_-][A-Za-z0-9+/_-]{39,}={0,2}"
        ),
        GONE,
    ),
)


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


def is_sensitive(name: str, names: re.Pattern[str] = SENSITIVE) -> bool:
    """Whether what is called so is secret."""
    spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower().replace("_", "-")
    return names.search(spelled) is not None


def clean(text: str) -> str:
    """A text without what looks like a secret."""
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text


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
