"""Credential plugins: programs that print a credential, as kubectl runs them.

The protocol is `client.authentication.k8s.io`: the plugin learns from the environment variable
`KUBERNETES_EXEC_INFO` for which cluster it is asked, and prints an ExecCredential. What it prints
may be a secret even when it makes no sense, so no message ever quotes it. Of what it writes to
standard error a message has the end, without what looks like a secret; the debug log has all.
"""

import base64
import errno
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from knfleet.api.meta import Object
from knfleet.kube import yaml
from knfleet.kube.auth.credentials import Credential, is_token
from knfleet.kube.auth.exec_process import (
    OUTPUT_LIMIT,
    ProcessEnd,
    ProcessResult,
    ProcessRunner,
    one_line,
    run,
)
from knfleet.kube.auth.pod_path import pod_path
from knfleet.kube.auth.x509 import check_key_pair
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import CredentialError

GROUP = "client.authentication.k8s.io"
API_VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
TIMEOUT_SECONDS = 30.0
EXEC_INFO = "KUBERNETES_EXEC_INFO"
QUOTED_CHARACTERS = 300
"""How much of standard error a message quotes; messages become conditions and Events."""


class ClusterInfo(Struct, frozen=True):
    """The cluster that a plugin is asked for, as the plugin gets it."""

    server: str
    ca: bytes | None = None
    proxy_url: str | None = None
    tls_server_name: str | None = None
    insecure: bool = False
    config: Any = None
    """Whatever the cluster's entry keeps for its plugin."""

    @classmethod
    def of(cls, endpoint: Endpoint, config: Any = None) -> "ClusterInfo":
        """The part of an endpoint that a plugin may know."""
        return cls(
            server=endpoint.server,
            ca=endpoint.ca,
            proxy_url=endpoint.proxy_url,
            tls_server_name=endpoint.tls_server_name,
            insecure=endpoint.insecure,
            config=config,
        )

    def as_object(self) -> Object:
        """The `spec.cluster` of an ExecCredential."""
        optional: Object = {
            "tls-server-name": self.tls_server_name,
            "insecure-skip-tls-verify": self.insecure,
            "certificate-authority-data": base64.b64encode(self.ca or b"").decode(),
            "proxy-url": self.proxy_url,
        }
        known = {name: value for name, value in optional.items() if value}
        return {"server": self.server, **known, "config": self.config}

    def __repr__(self) -> str:
        return f"ClusterInfo({self.server!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("server", self.server)]


class ExecPlugin(Struct, frozen=True):
    """A credential plugin, ready to be asked; it is run anew for every `fetch`."""

    command: str
    """A path, or a name that is looked up in PATH."""
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    """Added to the environment of this process."""
    api_version: str = API_VERSIONS[0]
    cluster: ClusterInfo | None = None
    """None when the plugin does not get it."""
    install_hint: str = ""
    timeout_seconds: float = TIMEOUT_SECONDS

    async def fetch(self, run: ProcessRunner = run) -> Credential:
        """What the plugin prints; raises `CredentialError` when it prints no usable credential."""
        if self.api_version not in API_VERSIONS:
            raise self.error(unsupported(self.api_version))
        program = self.program()
        env = {**os.environ, **dict(self.env), EXEC_INFO: self.exec_info()}
        argv = (program, *self.args)
        try:
            finished = await run(argv, env=env, timeout_seconds=self.timeout_seconds)
        except (OSError, ValueError) as error:
            raise self.error(f"cannot be started: {why_not_started(error)}") from error
        return self.credential(self.checked(finished))

    def program(self) -> str:
        """The file to run."""
        if "/" not in self.command:
            found = shutil.which(self.command) if self.command else None
            # A relative result comes from a relative folder in PATH, which may belong to any user.
            if found and Path(found).is_absolute():
                return found
            raise self.error(f"is not in PATH; install it, or name it by its path{self.hint()}")
        path = pod_path(self.command)
        if not path.exists():
            raise self.error(f"there is no such file; install it, or correct the path{self.hint()}")
        if path.is_dir() or not os.access(path, os.X_OK):
            raise self.error("is not an executable file; make it one, for instance with chmod +x")
        return str(path)

    def hint(self) -> str:
        """What the configuration says about installing the plugin."""
        text = one_line(self.install_hint.encode())
        return f". Its install hint: {text}" if text else ""

    def exec_info(self) -> str:
        """The ExecCredential that asks the plugin."""
        spec: Object = {"cluster": self.cluster.as_object()} if self.cluster else {}
        spec["interactive"] = False
        asking = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(asking).decode()

    def checked(self, finished: ProcessResult) -> bytes:
        """The output of a plugin that did its work."""
        output = f": {self.quoted(finished.complaint)}" if finished.complaint else ""
        if finished.ending is ProcessEnd.TIMED_OUT:
            limit = f"{self.timeout_seconds:g} s"
            raise self.error(f"did not answer within {limit} and was stopped{output}")
        if finished.ending is ProcessEnd.TOO_MUCH_OUTPUT:
            limit = f"{OUTPUT_LIMIT // 1024} KiB"
            raise self.error(f"printed more than {limit} and was stopped{output}")
        if finished.code < 0:
            raise self.error(f"was ended by signal {-finished.code}{output}")
        if finished.code > 0:
            raise self.error(
                f"failed with exit code {finished.code}{output or ', and printed nothing'}"
            )
        return finished.output

    def quoted(self, complaint: str) -> str:
        """The end of a complaint, short and without what looks like a secret; the log has all."""
        # Neither is worth its memory in processes whose plugins never fail.
        import structlog

        from knfleet.kube.secret_text import clean

        structlog.get_logger().debug("plugin wrote to stderr", plugin=self.command, text=complaint)
        text = clean(complaint)
        return text if len(text) <= QUOTED_CHARACTERS else f"…{text[1 - QUOTED_CHARACTERS :]}"

    def credential(self, output: bytes) -> Credential:
        """The credential in a plugin's output."""
        status = self.answer(output).status
        if status is None:
            raise self.error("printed an ExecCredential without a status")
        token, expires = status.token.strip(), status.expiration_timestamp
        certificate, key = status.client_certificate_data, status.client_key_data
        if not (token or certificate or key):
            raise self.error("printed neither a token nor a certificate with its key")
        if token and not is_token(token):
            raise self.error("printed a token with characters that no bearer token has")
        if bool(certificate) != bool(key):
            missing = (
                "a certificate without its key" if certificate else "a key without certificate"
            )
            raise self.error(f"printed {missing}; both are needed")
        if certificate and (problem := check_key_pair(certificate.encode(), key.encode())):
            raise self.error(f"printed a certificate that cannot be used: {problem}")
        if expires is not None and expires <= datetime.now(UTC):
            when = expires.astimezone(UTC).isoformat(timespec="seconds")
            raise self.error(f"printed a credential that ended at {when}; compare the clocks")
        return Credential(
            token=token or None,
            client_certificate=certificate.encode() or None,
            client_key=key.encode() or None,
            expires=expires,
        )

    def answer(self, output: bytes) -> "ExecCredential":
        """The ExecCredential in a plugin's output; the reasons of parsers may quote it."""
        if not output.strip():
            raise self.error("printed nothing; it has to print an ExecCredential")
        try:
            printed = yaml.load(output)
        except yaml.YamlError as error:
            where = f", see line {error.line} of it" if error.line else ""
            raise self.error(f"printed something that is neither JSON nor YAML{where}") from None
        head = printed if yaml.is_mapping(printed) else {}
        if head.get("kind") != "ExecCredential":
            raise self.error("printed something that is not an ExecCredential")
        if (version := str(head.get("apiVersion"))) != self.api_version:
            known = version if KNOWN_VERSION.fullmatch(version) else "another apiVersion"
            raise self.error(f"printed {known}, but is configured for {self.api_version}")
        try:
            return msgspec.convert(without_nulls(head), ExecCredential)
        except msgspec.ValidationError as error:
            raise self.error(f"printed an ExecCredential that is wrong: {error}") from None

    def error(self, problem: str) -> CredentialError:
        """What to raise; arguments and environment stay out of it, they may hold secrets."""
        return CredentialError(f"credential plugin {self.command or '(no command)'}: {problem}")

    def __repr__(self) -> str:
        return f"ExecPlugin({self.command!r}, {self.api_version!r}, {self.cluster!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("command", self.command), ("cluster", self.cluster)]


KNOWN_VERSION = re.compile(rf"{re.escape(GROUP)}/v[0-9]+((alpha|beta)[0-9]+)?")


class ExecCredentialStatus(Struct, rename="camel"):
    """The credential itself."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, Meta(tz=True)] | None = None


class ExecCredential(Struct):
    """An ExecCredential as plugins print it."""

    status: ExecCredentialStatus | None = None


def without_nulls(printed: Object) -> Object:
    """The part that we read, with nulls left out, which mean the same as nothing."""
    status = printed.get("status")
    if not yaml.is_mapping(status):
        return {"status": status}
    return {"status": {name: value for name, value in status.items() if value is not None}}


def unsupported(api_version: str) -> str:
    """What to say about an apiVersion that is not spoken here."""
    named = f"apiVersion {api_version} is not supported" if api_version else "apiVersion is missing"
    return f"{named}; use {' or '.join(API_VERSIONS)}, which current versions of plugins speak"


def why_not_started(error: OSError | ValueError) -> str:
    """The reason that the system gives; a ValueError is about a NUL in what we pass."""
    if not isinstance(error, OSError):
        return "an argument or a variable holds a NUL character"
    if error.errno == errno.ENOEXEC:
        return "it is neither a binary for this machine nor a script with a #! line"
    if error.errno == errno.E2BIG:
        return "its arguments and environment are too long, perhaps by the cluster's CA bundle"
    if error.errno == errno.ENOENT:
        return "the file, or the interpreter in its #! line, is not there"
    return error.strerror or type(error).__name__
