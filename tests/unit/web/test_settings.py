"""How a dashboard may be served."""

from pathlib import Path

import pytest

from knfleet.operator.settings import SettingError
from knfleet.web.server.settings import WebSettings, check, check_free, parse_address, tls_context
from testbed.fakes.certificates import Authority
from testbed.fakes.sockets import loopback_socket


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("", "127.0.0.1", 8787),
        (":9000", "127.0.0.1", 9000),
        ("0.0.0.0", "0.0.0.0", 8787),
        ("hub.example:443", "hub.example", 443),
        ("[::1]:8080", "::1", 8080),
        ("[::1]", "::1", 8787),
    ],
)
def test_an_address_may_leave_out_what_has_a_default(text: str, host: str, port: int) -> None:
    """Host and port are both optional."""
    assert (host, port) == parse_address(text)


@pytest.mark.parametrize("text", ["127.0.0.1:http", "127.0.0.1:70000"])
def test_a_port_that_is_none_is_told(text: str) -> None:
    """The message shows how to write it."""
    with pytest.raises(SettingError, match="write HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (WebSettings(host="0.0.0.0"), "people must log in"),
        (WebSettings(host="0.0.0.0", login=True), "unencrypted"),
        (WebSettings(certificate=Path("cert.pem")), "both files"),
    ],
)
def test_what_would_show_the_fleet_to_strangers_is_refused(
    settings: WebSettings, problem: str
) -> None:
    """Neither without a login nor without TLS may others be served."""
    with pytest.raises(SettingError, match=problem):
        check(settings)


@pytest.mark.parametrize(
    "settings",
    [
        WebSettings(),
        WebSettings(host="localhost"),
        WebSettings(host="0.0.0.0", login=True, plain=True),
        WebSettings(host="0.0.0.0", login=True, certificate=Path("c"), key=Path("k")),
    ],
)
def test_what_is_safe_is_accepted(settings: WebSettings) -> None:
    """On this machine alone, or with login and TLS, or behind a proxy that has it."""
    check(settings)


def test_on_this_machine_only_its_own_names_count() -> None:
    """A page elsewhere whose name resolves to this machine reads nothing here."""
    local = WebSettings(names=("dev.box",))

    assert all(map(local.allows, ("localhost", "127.0.0.1", "127.0.0.2", "::1", "dev.box")))
    assert not local.allows("evil.example")


def test_elsewhere_the_names_count_that_were_given() -> None:
    """Without any, whoever logs in decides under which name."""
    assert WebSettings(host="0.0.0.0").allows("hub.example")
    assert not WebSettings(host="0.0.0.0", names=("hub.example",)).allows("other.example")


def test_a_port_that_is_taken_is_told_before_anything_starts() -> None:
    """The message names the address."""
    with loopback_socket() as taken:
        port: int = taken.getsockname()[1]
        with pytest.raises(SettingError, match=f"127.0.0.1:{port}.*choose another port"):
            check_free(WebSettings(port=port))


def test_a_certificate_is_read_and_one_that_is_none_is_told(tmp_path: Path) -> None:
    """The message names both files, and nothing of their content."""
    pair = Authority().server()
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)

    assert tls_context(WebSettings(certificate=certificate, key=key)) is not None

    key.write_text("not a key")
    with pytest.raises(SettingError, match=r"tls\.crt and .*tls\.key cannot be used"):
        tls_context(WebSettings(certificate=certificate, key=key))
