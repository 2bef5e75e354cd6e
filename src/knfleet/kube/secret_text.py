"""Takes secrets out of texts, so that they can be shown. Pure.

Names tell more than values: what a setting, a flag or a variable is called decides first, then the
form of the value (keys and certificates, tokens, kubeconfigs, passwords in addresses). When in
doubt it is taken out.
"""

import re

GONE = "<redacted>"
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


def is_sensitive(name: str, names: re.Pattern[str] = SENSITIVE) -> bool:
    """Whether what is called so is secret."""
    spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower().replace("_", "-")
    return names.search(spelled) is not None


def clean(text: str) -> str:
    """A text without what looks like a secret."""
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text
