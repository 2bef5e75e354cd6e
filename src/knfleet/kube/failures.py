"""What it means that there was no answer: aiohttp's errors, told apart for people."""

import socket
import ssl
from urllib.parse import urlsplit

import aiohttp

from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import (
    DnsFailed,
    Interrupted,
    NetworkError,
    ProxyFailed,
    Refused,
    TlsFailed,
    Unanswered,
)


def authority(url: str) -> str:
    """Host and port of a URL, without what may be secret in it."""
    return urlsplit(url).netloc.rpartition("@")[2]


def network_error(error: Exception, where: str, endpoint: Endpoint) -> NetworkError:
    """Our own error for one of aiohttp's or the operating system's."""
    server = authority(endpoint.server)
    proxy = authority(endpoint.proxy_url) if endpoint.proxy_url else ""
    match error:
        case NetworkError():
            return error
        case aiohttp.ClientHttpProxyError():
            kind, text = ProxyFailed, f"the proxy {proxy} answered {error.status} {error.message}"
        case aiohttp.ClientProxyConnectionError():
            kind, text = ProxyFailed, f"the proxy {proxy} is not there: {reason(error)}"
        case aiohttp.ClientConnectorDNSError():
            kind, text = DnsFailed, f"{error.host} does not resolve: {reason(error)}"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            kind, text = TlsFailed, f"TLS with {server} failed: {tls_reason(error)}"
        case aiohttp.ConnectionTimeoutError():
            kind, text = Unanswered, f"no connection to {proxy or server} in time"
        case aiohttp.ClientConnectorError():
            kind, text = Refused, f"cannot connect to {server}: {reason(error)}"
        case TimeoutError():
            kind, text = Unanswered, f"nothing was heard from {server} for too long"
        case _:
            kind, text = Interrupted, f"the connection to {server} ended: {reason(error)}"
    return kind(f"{where}: {text}")


def reason(error: Exception) -> str:
    """The system's words for an error, without addresses of Python objects."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, socket.gaierror):
        return cause.strerror or str(cause)
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__


def tls_reason(error: Exception) -> str:
    """What the TLS library found wrong."""
    cause = error.__cause__ if isinstance(error, aiohttp.ClientSSLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message or str(cause)
    if isinstance(cause, ssl.SSLError):
        return cause.reason or str(cause)
    return str(cause)
