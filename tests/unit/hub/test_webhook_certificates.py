"""When the webhook server's certificates are replaced, and with what."""

from datetime import UTC, datetime, timedelta

from knfleet.hub.webhook.webhook_certificates import (
    CA_LIFE,
    OVERLAP,
    SERVING_LIFE,
    WebhookCertificates,
    has_signed,
    renewal,
    served_names,
    service_names,
)

NAMES = service_names("hook", "home")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def secret(kept: WebhookCertificates, **changed: str) -> dict[str, dict[str, str]]:
    """A Secret with certificates."""
    return {"data": {**kept.data(), **changed}}


def test_nothing_kept_means_a_new_authority_and_a_certificate_by_it():
    made = renewal(None, NAMES, NOW)
    kept = made.certificates

    assert has_signed(kept.authorities[0], kept.serving)
    assert served_names(kept.serving) == sorted(NAMES)
    assert WebhookCertificates.of(secret(kept)) == kept
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
    assert WebhookCertificates.of(None) is None
    assert WebhookCertificates.of({}) is None
    assert WebhookCertificates.of(secret(kept, **{"tls.key": other.data()["tls.key"]})) is None
    assert WebhookCertificates.of(secret(kept, **{"ca.key": other.data()["ca.key"]})) is None
    assert WebhookCertificates.of(secret(kept, **{"ca.crt": other.data()["ca.crt"]})) is None
    assert WebhookCertificates.of(secret(kept, **{"tls.crt": "!"})) is None
    assert WebhookCertificates.of(secret(kept, **{"tls.crt": "aGVsbG8="})) is None


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
    assert made.bundle == kept.bundle


def test_keys_are_not_printed():
    kept = renewal(None, NAMES, NOW).certificates

    assert "PRIVATE" not in repr(kept)
    assert "PRIVATE" not in repr(renewal(kept, NAMES, NOW))
