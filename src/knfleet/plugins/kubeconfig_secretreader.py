"""The plugin `kubeconfig-secretreader`: the user of a kubeconfig that a Secret holds.

Of the cluster's configuration it takes `name` and `key` of the Secret, and optionally `namespace`
and `context`. The author of a kubeconfig must not make us run programs or read files here, so it
may name neither.
"""

import base64
import binascii
import json
from typing import Any, cast

from knfleet.plugins import hub_api
from knfleet.plugins.execcredential import (
    Json,
    PluginEnvironment,
    PluginError,
    PluginRequest,
    mapping,
    serve,
    with_token,
)

NAME = "kubeconfig-secretreader"
REFUSED = {
    "exec": "programs are not supported",
    "auth-provider": "auth providers are not supported",
    "tokenFile": "tokenFile file path is not supported; use token",
    "client-certificate": (
        "client-certificate file path is not supported; use client-certificate-data"
    ),
    "client-key": "client-key file path is not supported; use client-key-data",
    "username": "passwords are not supported; use a token",
    "password": "passwords are not supported; use a token",
}


def credential(question: PluginRequest, here: PluginEnvironment) -> Json:
    """What the kubeconfig's user logs in with."""
    if question.config is None:
        raise PluginError(
            "missing ExecCredential.Spec.Cluster.Config; give the cluster the extension "
            "client.authentication.k8s.io/exec with name and key of a Secret"
        )
    name = question.text("name", required=True)
    key = question.text("key", required=True)
    found, where = hub_api.value(question, here, (name,), key)
    config = load(found, where)
    if config.get("extensions"):
        raise PluginError(f"{where}: kubeconfig extensions are not supported")
    return status_of(user_of(config, question.text("context"), where), where)


def load(text: str, where: str) -> Json:
    """A kubeconfig as it is written; JSON is tried first, for it costs nothing."""
    try:
        return mapping(json.loads(text))
    except (ValueError, RecursionError):
        pass
    import yaml

    try:
        config: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        # The reasons of parsers quote the text, which is a secret.
        raise PluginError(f"failed to parse kubeconfig from {where}: it is not YAML")
    return mapping(cast("object", config))


def user_of(config: Json, context: str, where: str) -> Json:
    """The user of a context, or of the current one."""
    name = context or str(config.get("current-context") or "")
    if not name:
        raise PluginError(f"{where}: no context specified and no current-context in kubeconfig")
    chosen = entry(config, "context", name)
    if chosen is None:
        raise PluginError(f'{where}: context "{name}" not found in kubeconfig')
    user = str(chosen.get("user") or "")
    found = entry(config, "user", user)
    if found is None:
        raise PluginError(f'{where}: user "{user}" not found in kubeconfig')
    for field, problem in REFUSED.items():
        if found.get(field) and not found.get(f"{field}-data"):
            raise PluginError(f'{where}: user "{user}": {problem}')
    return found


def entry(config: Json, kind: str, name: str) -> Json | None:
    """What one of the kubeconfig's lists says about a name."""
    entries = config.get(f"{kind}s")
    if not isinstance(entries, list):
        return None
    for each in map(mapping, cast("list[object]", entries)):
        if each.get("name") == name:
            return mapping(each.get(kind))
    return None


def status_of(user: Json, where: str) -> Json:
    """The token, the certificate with its key, or both."""
    status: Json = {}
    if token := user.get("token"):
        status = with_token(str(token).strip(), where)
    certificate, key = (pem(user, field, where) for field in ("client-certificate", "client-key"))
    if certificate and not key:
        raise PluginError(f"{where}: client-certificate-data found but no client-key-data")
    if key and not certificate:
        raise PluginError(f"{where}: client-key-data found but no client-certificate-data")
    if certificate:
        status |= {"clientCertificateData": certificate, "clientKeyData": key}
    if not status:
        raise PluginError(
            f"{where}: no authentication method found "
            "(neither token nor client-certificate-data/client-key-data)"
        )
    return status


def pem(user: Json, field: str, where: str) -> str:
    """The text of a field that holds base64 of PEM."""
    text = str(user.get(f"{field}-data") or "")
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise PluginError(f"{where}: {field}-data is not base64 of PEM") from None


def main() -> None:
    """Answer on standard output."""
    serve(NAME, credential, hub_api.find)


if __name__ == "__main__":
    main()
