"""How a user of a kubeconfig logs in: the field that counts, with client-go's precedence.

A token file wins over a token; a token and a certificate go together; a plugin counts only when
there is neither. What client-go does and we do not (passwords, auth providers, impersonation) is
refused with the name of the field and what to use instead.
"""

import os
from pathlib import Path

from knfleet.kube.auth.credentials import (
    CertificatePair,
    CombinedCredential,
    Credential,
    CredentialSource,
    StaticCredential,
    TokenFile,
    is_token,
)
from knfleet.kube.auth.exec_plugin import API_VERSIONS, ClusterInfo, ExecPlugin, unsupported
from knfleet.kube.auth.kubeconfig_entries import ClusterEntry, ExecBody, UserEntry
from knfleet.kube.endpoint import Endpoint

REFUSED = {
    "username": "passwords are not supported, API servers do not take them; use a token",
    "password": "passwords are not supported, API servers do not take them; use a token",
    "auth-provider": "auth providers were removed from Kubernetes; use an exec plugin",
    **dict.fromkeys(
        ("as", "as-uid", "as-groups", "as-user-extra"),
        "impersonation is not supported; use the credentials of the user itself",
    ),
}
INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")


def credentials_of(
    user: UserEntry | None, cluster: ClusterEntry, endpoint: Endpoint
) -> CredentialSource:
    """Where the credentials of a user come from; empty without a user."""
    if user is None:
        return StaticCredential()
    refuse(user)
    token, pair = token_of(user), pair_of(user)
    if token and pair:
        return CombinedCredential(token, pair)
    if found := token or pair:
        return found
    if user.body.exec is not None:
        return plugin_of(user, user.body.exec, ClusterInfo.of(endpoint, cluster.exec_config()))
    return StaticCredential()


def refuse(user: UserEntry) -> None:
    """Raise for what cannot be used, rather than log in as another user."""
    body = user.body
    values = (
        ("username", body.username),
        ("password", body.password),
        ("auth-provider", body.auth_provider),
        ("as", body.as_),
        ("as-uid", body.as_uid),
        ("as-groups", body.as_groups),
        ("as-user-extra", body.as_user_extra),
    )
    for at, value in values:
        if value:
            raise user.error(at, REFUSED[at])


def token_of(user: UserEntry) -> CredentialSource | None:
    """The token, or the file with it."""
    if user.body.token_file:
        if user.origin.folder is None:
            raise user.error("tokenFile", "a file must not be named here; use token")
        user.file("tokenFile", user.body.token_file)
        return TokenFile(user.path("tokenFile", user.body.token_file))
    if not (token := user.body.token.strip()):
        return None
    if not is_token(token):
        raise user.error("token", "it holds characters that no bearer token has")
    return StaticCredential(Credential(token=token))


def pair_of(user: UserEntry) -> CredentialSource | None:
    """The client certificate with its key."""
    body = user.body
    certificate = user.either(
        "client-certificate", body.client_certificate, body.client_certificate_data
    )
    key = user.either("client-key", body.client_key, body.client_key_data)
    if certificate is None and key is None:
        return None
    if key is None:
        raise user.error("client-key", "a client certificate is set, but no key; set both")
    if certificate is None:
        raise user.error("client-certificate", "a client key is set, but no certificate; set both")
    if isinstance(certificate, Path):
        user.file("client-certificate", body.client_certificate)
    if isinstance(key, Path):
        user.file("client-key", body.client_key)
    return CertificatePair(certificate, key)


def plugin_of(user: UserEntry, body: ExecBody, cluster: ClusterInfo) -> ExecPlugin:
    """The credential plugin."""
    if (folder := user.origin.folder) is None:
        raise user.error("exec", "a program must not be named here; use a token or a certificate")
    if not body.command:
        raise user.error("exec.command", "it is missing; name the program")
    if body.api_version not in API_VERSIONS:
        raise user.error("exec.apiVersion", unsupported(body.api_version))
    if any(not variable.name for variable in body.env):
        raise user.error("exec.env", "a variable has no name")
    check_interactive_mode(user, body)
    with_folder = os.sep in body.command
    return ExecPlugin(
        command=str(folder / body.command) if with_folder else body.command,
        args=body.args,
        env=tuple((variable.name, variable.value) for variable in body.env),
        api_version=body.api_version,
        cluster=cluster if body.provide_cluster_info else None,
        install_hint=body.install_hint,
    )


def check_interactive_mode(user: UserEntry, body: ExecBody) -> None:
    """We have no terminal to lend to a plugin."""
    at, mode = "exec.interactiveMode", body.interactive_mode
    if not mode and body.api_version == API_VERSIONS[0]:
        raise user.error(at, f"it is missing; {body.api_version} needs Never or IfAvailable")
    if mode == "Always":
        raise user.error(
            at, "the plugin requires a terminal, which is not available here; use Never"
        )
    if mode and mode not in INTERACTIVE_MODES:
        raise user.error(at, f"it has to be one of {', '.join(INTERACTIVE_MODES)}")
