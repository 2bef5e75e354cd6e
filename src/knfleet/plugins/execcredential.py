"""The plugin's side of `client.authentication.k8s.io`: what it is asked, and what it answers.

A plugin is started for every login, so everything here is the standard library alone: importing
more would take longer than the work itself. What is printed on standard error is one line that
names what is wrong and what to do, and never a secret.
"""

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

GROUP = "client.authentication.k8s.io"
API_VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
EXEC_INFO = "KUBERNETES_EXEC_INFO"
PROFILE = "KNFLEET_CLUSTER_PROFILE"
"""Names the ClusterProfile, as `namespace/name`, to plugins that knfleet itself runs."""

Json = dict[str, Any]


class PluginError(Exception):
    """Why there is no credential."""


class PluginRequest(NamedTuple):
    """What a plugin is asked."""

    api_version: str
    config: Json | None
    """What the cluster's entry keeps for its plugin."""
    profile: tuple[str, str] | None
    """Namespace and name of the ClusterProfile that it is asked for, if that is known."""

    def text(self, name: str, *, required: bool = False) -> str:
        """One field of the configuration; empty when it may be missing and is."""
        value = (self.config or {}).get(name)
        if value is None or value == "":
            if required:
                raise PluginError(
                    f"missing {name} in ExecCredential.Spec.Cluster.Config; add it to the "
                    f"cluster's extension {GROUP}/exec"
                )
            return ""
        if not isinstance(value, str):
            raise PluginError(f"{name} in ExecCredential.Spec.Cluster.Config has to be a string")
        return value


class SecretReader(Protocol):
    """The cluster that has the Secrets."""

    @property
    def namespace(self) -> str:
        """Where Secrets are by default."""
        ...

    def secret(self, namespace: str, name: str) -> dict[str, bytes] | None:
        """The data of a Secret; None when there is no such Secret."""
        ...


Find = Callable[[Mapping[str, str]], SecretReader]
"""From an environment to the cluster that it means."""


class PluginEnvironment(NamedTuple):
    """Where a plugin runs."""

    environ: Mapping[str, str]
    find: Find

    def hub(self) -> SecretReader:
        """The cluster that has the Secrets; raises when there is none."""
        return self.find(self.environ)


Provide = Callable[[PluginRequest, PluginEnvironment], Json]
"""What a plugin does: from a question to the status of the answer."""


def asked(environ: Mapping[str, str]) -> PluginRequest:
    """What the caller wants, as it says in the environment."""
    text = environ.get(EXEC_INFO, "")
    if not text:
        raise PluginError(
            f"{EXEC_INFO} is not set; name this program as an exec plugin in a kubeconfig or in "
            "a provider file, with provideClusterInfo: true"
        )
    try:
        info = mapping(json.loads(text))
    except ValueError:
        raise PluginError(f"{EXEC_INFO} is not JSON") from None
    version = str(info.get("apiVersion"))
    if info.get("kind") != "ExecCredential" or version not in API_VERSIONS:
        raise PluginError(f"{EXEC_INFO} is no ExecCredential of {' or '.join(API_VERSIONS)}")
    cluster = mapping(mapping(info.get("spec")).get("cluster"))
    if not cluster:
        raise PluginError(
            f"there is no spec.cluster in {EXEC_INFO}; set provideClusterInfo: true where this "
            "plugin is configured"
        )
    return PluginRequest(version, configuration(cluster.get("config")), profile_of(environ))


def configuration(value: object) -> Json | None:
    """The configuration that the cluster's entry has, or None."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise PluginError("ExecCredential.Spec.Cluster.Config has to be an object")
    return cast("Json", value)


def profile_of(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The ClusterProfile, if the caller says which."""
    namespace, slash, name = environ.get(PROFILE, "").partition("/")
    return (namespace, name) if slash and namespace and name else None


def mapping(value: object) -> Json:
    """A JSON object; nothing when it is something else."""
    return cast("Json", value) if isinstance(value, dict) else {}


def with_token(token: str, where: str) -> Json:
    """The status with a token, and with its end if the token tells it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise PluginError(f"{where} holds characters that no bearer token has")
    end = end_of(token)
    if end is None:
        return {"token": token}
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))
    if end <= time.time():
        raise PluginError(f"{where} holds a token that ended at {when}; renew it")
    return {"token": token, "expirationTimestamp": when}


def end_of(token: str) -> float | None:
    """When a token ends, in seconds of the epoch; None unless it is a JWT that says so."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        end = mapping(json.loads(base64.urlsafe_b64decode(padded))).get("exp")
        if isinstance(end, bool) or not isinstance(end, int | float):
            return None
        # Years that no clock can tell are as good as none.
        return float(end) if 0 < end < 253402300800 else None
    except (ValueError, RecursionError):
        return None


def answer(question: PluginRequest, status: Json) -> str:
    """The ExecCredential to print."""
    return json.dumps(
        {"apiVersion": question.api_version, "kind": "ExecCredential", "status": status},
        separators=(",", ":"),
    )


class PluginOutput(NamedTuple):
    """What a plugin prints, and where."""

    code: int
    """Its exit code: with 0 the text is a credential, else one line about what is wrong."""
    text: str


def respond(name: str, provide: Provide, here: PluginEnvironment) -> PluginOutput:
    """What a plugin says to what it is asked in an environment."""
    try:
        question = asked(here.environ)
        return PluginOutput(0, answer(question, provide(question, here)))
    except PluginError as error:
        line = " ".join(str(error).split())
        return PluginOutput(1, f"[{name}] {line}")


def serve(name: str, provide: Provide, find: Find) -> None:
    """Run a plugin: print its credential, or one line about what is wrong and exit with 1."""
    code, text = respond(name, provide, PluginEnvironment(os.environ, find))
    (sys.stderr if code else sys.stdout).write(f"{text}\n")
    if code:
        sys.exit(code)
