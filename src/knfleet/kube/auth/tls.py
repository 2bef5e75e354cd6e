"""TLS contexts: what is trusted, and which client certificate is shown.

A context that holds the machine's trust store costs more than a megabyte, so clients that trust the
same and show the same share one. It goes away with the last connection that uses it.
"""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from knfleet.kube.auth.credentials import Credential
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import ConfigError, CredentialError

ContextKey = tuple[bytes | None, bool, bytes | None, bytes | None]
shared: WeakValueDictionary[ContextKey, ssl.SSLContext] = WeakValueDictionary()


async def tls_context(endpoint: Endpoint, credential: Credential) -> ssl.SSLContext:
    """The context for connections to an endpoint with a credential."""
    key = (
        endpoint.ca,
        endpoint.insecure,
        credential.client_certificate,
        credential.client_key,
    )
    context = shared.get(key)
    if context is None:
        if endpoint.ca is None and not endpoint.insecure:
            # Reading the machine's trust store takes a tenth of a second.
            context = await asyncio.to_thread(new_context, endpoint, credential)
        else:
            context = new_context(endpoint, credential)
        context = shared.setdefault(key, context)
    return context


def new_context(endpoint: Endpoint, credential: Credential) -> ssl.SSLContext:
    """A context of its own for an endpoint and a credential."""
    context = trusting_all() if endpoint.insecure else trusting(endpoint.ca)
    context.set_alpn_protocols(["http/1.1"])
    if credential.client_certificate is not None:
        load_pair(context, credential.client_certificate, credential.client_key or b"")
    return context


def trusting_all() -> ssl.SSLContext:
    """A context that does not look at certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def trusting(ca: bytes | None) -> ssl.SSLContext:
    """A context that trusts one bundle, or what the machine trusts."""
    if ca is None:
        return ssl.create_default_context()
    try:
        context = ssl.create_default_context(cadata=ca.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the cluster's CA is not PEM: {error}") from error
    # A cluster's CA bundle often holds intermediate certificates only; client-go trusts those too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Make a context show a client certificate; nothing stays on disk."""
    with readable(certificate.rstrip() + b"\n" + key) as path:
        try:
            context.load_cert_chain(path, password=refuse_password)
        except (ssl.SSLError, ValueError) as error:
            raise CredentialError(f"the client certificate cannot be used: {error}") from error


def refuse_password() -> str:
    """Never ask on the terminal for the password of a key."""
    raise ValueError("the key is encrypted")


@contextmanager
def readable(content: bytes) -> Generator[str, None, None]:
    """A path at which a secret can be read for a moment: `ssl` takes key pairs from paths only."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name
