"""When certificates of the hub's ports are replaced, and what their CAs can sign for."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from knfleet.hub.certificates.certificate_authority import (
    has_signed,
    key_of,
    key_pem,
    new_key,
    pem,
    served_names,
    serving_certificate,
)
from knfleet.hub.certificates.port_certificates import (
    CA_LIFE,
    OVERLAP,
    SERVING_LIFE,
    PortCertificates,
    renewal,
    service_names,
)
from knfleet.kube.auth.tls import load_pair, trusting
from testbed.fakes.certificates import Pair

NAMES = service_names("hook", "home")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def secret(kept: PortCertificates, **changed: str) -> dict[str, dict[str, str]]:
    """A Secret with certificates."""
    return {"data": {**kept.data(), **changed}}


def test_nothing_kept_means_a_new_authority_and_a_certificate_by_it():
    made = renewal(None, NAMES, NOW)
    kept = made.certificates

    assert has_signed(kept.authorities[0], kept.serving)
    assert served_names(kept.serving) == sorted(NAMES)
    assert PortCertificates.of(secret(kept)) == kept
    assert kept.serving.not_valid_after_utc > made.look_at > NOW


def test_what_is_kept_stays_until_it_is_due():
    made = renewal(None, NAMES, NOW)

    for moment in (NOW, NOW + SERVING_LIFE / 2, made.look_at - timedelta(seconds=1)):
        assert renewal(made.certificates, NAMES, moment).certificates == made.certificates


def test_a_serving_certificate_is_renewed_before_it_ends_by_the_same_authority():
    first = renewal(None, NAMES, NOW)

    second = renewal(first.certificates, NAMES, first.look_at)

    assert second.certificates.bundle == first.certificates.bundle
    assert second.certificates.serving != first.certificates.serving
    assert has_signed(second.certificates.authorities[0], second.certificates.serving)
    assert second.look_at > first.look_at


def test_a_new_authority_is_known_for_a_while_before_it_signs():
    """And the old one is trusted until nothing of it is served."""
    kept = renewal(None, NAMES, NOW).certificates
    old = kept.authorities[0]
    moment = NOW + CA_LIFE * 0.5
    kept = renewal(kept, NAMES, moment).certificates
    moment = NOW + CA_LIFE * 0.7
    kept = renewal(kept, NAMES, moment).certificates

    assert old in kept.authorities
    assert len(kept.authorities) == 2
    assert has_signed(old, kept.serving)

    later = renewal(kept, NAMES, moment + OVERLAP)
    assert later.certificates.authorities == [kept.authorities[0]]
    assert has_signed(kept.authorities[0], later.certificates.serving)


def test_the_rotation_never_serves_what_a_client_of_the_former_bundle_does_not_trust():
    """Clients take up a bundle within the overlap; moments are those that are asked for."""
    made, moment = renewal(None, NAMES, NOW), NOW
    rotated = 0
    while moment < NOW + 3 * CA_LIFE:
        trusted = made.certificates.authorities
        moment = made.look_at
        following = renewal(made.certificates, NAMES, moment)
        assert any(has_signed(each, following.certificates.serving) for each in trusted)
        assert following.certificates.serving.not_valid_after_utc > moment
        rotated += following.certificates.authorities[0] != trusted[0]
        made = following

    assert rotated >= 3


def test_an_expired_or_broken_secret_is_replaced():
    kept = renewal(None, NAMES, NOW).certificates
    other = renewal(None, NAMES, NOW).certificates

    assert renewal(kept, NAMES, NOW + CA_LIFE).certificates.authorities != kept.authorities
    assert PortCertificates.of(None) is None
    assert PortCertificates.of({}) is None
    assert PortCertificates.of(secret(kept, **{"tls.key": other.data()["tls.key"]})) is None
    assert PortCertificates.of(secret(kept, **{"ca.key": other.data()["ca.key"]})) is None
    assert PortCertificates.of(secret(kept, **{"ca.crt": other.data()["ca.crt"]})) is None
    assert PortCertificates.of(secret(kept, **{"tls.crt": "!"})) is None
    assert PortCertificates.of(secret(kept, **{"tls.crt": "aGVsbG8="})) is None


def test_an_expired_serving_certificate_is_replaced_at_once():
    """Also when the newest authority is younger than the overlap."""
    kept = renewal(None, NAMES, NOW).certificates
    moment = NOW + CA_LIFE * 0.7

    made = renewal(kept, NAMES, moment).certificates

    assert made.serving.not_valid_after_utc > moment


def test_certificates_of_a_clock_that_was_wrong_are_replaced():
    kept = renewal(None, NAMES, NOW + CA_LIFE).certificates

    made = renewal(kept, NAMES, NOW).certificates

    assert made.serving.not_valid_before_utc <= NOW
    assert made.authorities[0].not_valid_before_utc <= NOW


def test_another_name_of_the_service_means_another_certificate():
    kept = renewal(None, NAMES, NOW).certificates

    made = renewal(kept, service_names("hook", "elsewhere"), NOW).certificates

    assert "hook.elsewhere.svc" in served_names(made.serving)
    assert has_signed(made.authorities[0], made.serving)
    assert kept.authorities[0] not in made.authorities


async def is_trusted(bundle: bytes, served: Pair, host: str) -> bool:
    """Whether a client with a bundle connects to a server, which it calls by a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, served.certificate, served.key)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=trusting(bundle), server_hostname=host
            )
        except ssl.SSLCertVerificationError:
            return False
        writer.transport.abort()
        return True


def forged(kept: PortCertificates, name: str) -> Pair:
    """What one could make with the key of a CA that leaked."""
    key = new_key()
    made = serving_certificate(
        key.public_key(),
        [name],
        NOW - timedelta(days=1),
        kept.authorities[0].not_valid_after_utc,
        issuer=kept.authorities[0],
        issuer_key=key_of(kept.ca_key),
    )
    return Pair(pem(made), key_pem(key))


@pytest.mark.parametrize(
    "name", ["kubernetes.default.svc", "hook.home.svc.evil.example", "localhost", "127.0.0.1"]
)
async def test_a_leaked_key_of_an_authority_vouches_for_no_other_name(name: str):
    kept = renewal(None, NAMES, datetime.now(UTC)).certificates
    served = Pair(kept.certificate, kept.key)

    assert await is_trusted(kept.bundle, served, NAMES[0])
    assert not await is_trusted(kept.bundle, forged(kept, name), name)


async def test_addresses_may_be_among_the_names():
    kept = renewal(None, ["127.0.0.1"], datetime.now(UTC)).certificates

    assert await is_trusted(kept.bundle, Pair(kept.certificate, kept.key), "127.0.0.1")
    assert not await is_trusted(kept.bundle, forged(kept, "127.0.0.2"), "127.0.0.2")
    assert not await is_trusted(kept.bundle, forged(kept, "localhost"), "localhost")


def test_an_authority_that_can_sign_for_everything_is_replaced_with_an_overlap():
    """Such CAs were made by earlier releases."""
    made = renewal(None, ["home.svc"], NOW).certificates
    key = key_of(made.ca_key)
    served = serving_certificate(
        key_of(made.key).public_key(),
        NAMES,
        NOW,
        NOW + SERVING_LIFE,
        issuer=made.authorities[0],
        issuer_key=key,
    )
    kept = replace(made, certificate=pem(served))

    first = renewal(kept, NAMES, NOW)
    later = renewal(first.certificates, NAMES, first.look_at)

    assert first.certificates.certificate == kept.certificate
    assert first.certificates.authorities[1:] == kept.authorities
    assert len(later.certificates.authorities) == 1
    assert has_signed(first.certificates.authorities[0], later.certificates.serving)


def test_keys_are_not_printed():
    kept = renewal(None, NAMES, NOW).certificates

    assert "PRIVATE" not in repr(kept)
    assert "PRIVATE" not in repr(renewal(kept, NAMES, NOW))
