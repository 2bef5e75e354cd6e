"""How a dashboard is served, and which ways of serving it are refused."""

import ipaddress
import socket
import ssl
from pathlib import Path

from msgspec import Struct

from knfleet.operator.settings import SettingError

PORT = 8787
IDLE_SECONDS = 1800.0
RIGHTS_SECONDS = 30.0
"""How long it is believed what a user may see."""
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class WebSettings(Struct, frozen=True, kw_only=True):
    """How a dashboard is served."""

    host: str = "127.0.0.1"
    port: int = PORT
    login: bool = False
    """Whether people log in with a token of their own; else one key opens it, as ourselves."""
    actions: bool = False
    """Whether people may do something, each with their own rights."""
    certificate: Path | None = None
    key: Path | None = None
    plain: bool = False
    """Whether others may be served without TLS, because something in front of us has it."""
    names: tuple[str, ...] = ()
    """Names under which the server may be asked, beside those of this machine."""
    idle_seconds: float = IDLE_SECONDS
    rights_seconds: float = RIGHTS_SECONDS

    @property
    def is_local(self) -> bool:
        """Whether only this machine can ask."""
        return is_loopback(self.host)

    @property
    def has_tls(self) -> bool:
        """Whether the server proves who it is."""
        return self.certificate is not None

    def allows(self, name: str) -> bool:
        """Whether the server may be asked under a name; else a page elsewhere could ask it."""
        if self.is_local:
            return name in LOCAL_NAMES or name in self.names or is_loopback(name)
        return not self.names or name in self.names


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str, default_host: str = "127.0.0.1") -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `HOST`, `:PORT` or nothing."""
    host, colon, port = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, port = text, ""
    if port and not (port.isdecimal() and int(port) < 65536):
        raise SettingError(f"{text!r} is not an address; write HOST:PORT, such as 127.0.0.1:{PORT}")
    host = host.removeprefix("[").removesuffix("]")
    return host or default_host, int(port) if port else PORT


def check(settings: WebSettings) -> None:
    """Raise `SettingError` about a way of serving that would show the fleet to strangers."""
    if (settings.certificate is None) != (settings.key is None):
        raise SettingError("a TLS certificate and its key are needed together; name both files")
    if settings.is_local:
        return
    if not settings.login:
        raise SettingError(f"{settings.host} can be reached from outside: people must log in there")
    if not settings.has_tls and not settings.plain:
        raise SettingError(
            f"{settings.host} can be reached from outside, and tokens would travel unencrypted;"
            " give a certificate and key, or --insecure-http behind a proxy with TLS"
        )


def check_free(settings: WebSettings) -> None:
    """Raise `SettingError` when the address cannot be listened on."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise not_free(settings, error) from error


def not_free(settings: WebSettings, error: OSError) -> SettingError:
    """What to say when the address cannot be listened on."""
    where = f"{settings.host}:{settings.port}"
    problem = error.strerror or type(error).__name__
    return SettingError(f"the dashboard cannot listen on {where}: {problem}; choose another port")


def tls_context(settings: WebSettings) -> ssl.SSLContext | None:
    """What the server proves who it is with; none for plain HTTP."""
    if settings.certificate is None or settings.key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        files = f"{settings.certificate} and {settings.key}"
        problem = getattr(error, "strerror", "") or type(error).__name__
        raise SettingError(f"{files} cannot be used as certificate and key: {problem}") from error
    return context
