"""What it means that there was no answer: aiohttp's errors, distinguished for users."""

import os
import socket
import ssl
from urllib.parse import urlsplit

import aiohttp

from knfleet.kube.errors import (
    ConnectionInterrupted,
    ConnectionRefused,
    DnsFailed,
    NetworkError,
    ProxyFailed,
    RequestTimeout,
    TlsFailed,
)

NOT_ABOUT_TLS = (aiohttp.ClientError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Wrapped errors, and connections that just ended."""


def authority(url: str) -> str:
    """Host and port of a URL, without what may be secret in it."""
    return urlsplit(url).netloc.rpartition("@")[2]


class ConnectionLost(aiohttp.ClientError):
    """The connection ended after the request, or some of it, was sent."""


def network_error(
    error: Exception, where: str, *, server: str, proxy: object | None, doubt: str = ""
) -> NetworkError:
    """Our own error for one of aiohttp's or the operating system's."""
    if isinstance(error, ConnectionLost) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    match error:
        case aiohttp.ClientHttpProxyError():
            kind, text = ProxyFailed, f"the proxy {proxy} answered {error.status} {error.message}"
        case aiohttp.ClientProxyConnectionError():
            kind, text = ProxyFailed, f"the proxy {proxy} is not there: {reason(error)}"
        case aiohttp.ClientConnectorDNSError():
            kind, text = DnsFailed, f"{error.host} does not resolve: {reason(error)}"
        case _ if (found := tls_cause(error)) is not None:
            kind, text = TlsFailed, f"TLS with {server} failed: {tls_reason(found)}"
        case aiohttp.ConnectionTimeoutError():
            kind, text = RequestTimeout, f"no connection to {proxy or server} in time"
        case aiohttp.ClientConnectorError():
            kind, text = ConnectionRefused, f"cannot connect to {server}: {reason(error)}"
        case TimeoutError():
            kind, text = RequestTimeout, f"no data was received from {server} for too long"
        case _:
            kind, text = ConnectionInterrupted, f"the connection to {server} ended: {reason(error)}"
    return kind(f"{where}: {text}" + (f"; {doubt}" if doubt else ""))


def reason(error: Exception) -> str:
    """The system's words for an error, without addresses of Python objects."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, socket.gaierror):
        return cause.strerror or str(cause)
    if isinstance(cause, OSError) and cause.strerror:
        # What the event loop writes there repeats the address, which the message has already.
        is_repeated = cause.strerror.startswith("Connect call failed")
        return os.strerror(cause.errno) if is_repeated and cause.errno else cause.strerror
    return str(cause) or type(cause).__name__


def tls_cause(error: BaseException | None) -> ssl.SSLError | None:
    """The complaint of the TLS library that an error goes back to, if it does."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, NOT_ABOUT_TLS):
            return error
        error = error.__cause__
    return None


def tls_reason(error: ssl.SSLError) -> str:
    """What the TLS library found wrong."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message or str(error)
    return error.reason or str(error)
