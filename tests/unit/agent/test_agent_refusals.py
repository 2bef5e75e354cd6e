"""What the agent says when a hub does not take it."""

import pytest

from knfleet.agent.registration.cluster_registration import failure_reason
from knfleet.kube.errors import ConnectionRefused, Forbidden, KubeError, TlsFailed, Unauthorized


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        (Unauthorized("who?"), "BootstrapSecretUnauthorized", "get one by `knfleet get token`"),
        (Forbidden("no"), "BootstrapSecretUnauthorized", "the token is not one for joining"),
        (TlsFailed("unknown CA"), "BootstrapSecretError", "join again with --ca-file"),
        (ConnectionRefused("nobody listens there"), "BootstrapSecretError", "nobody listens there"),
    ],
)
def test_each_refusal_says_what_to_do(error: KubeError, reason: str, remedy: str):
    said, message = failure_reason(error)

    assert said == reason
    assert str(error) in message
    assert remedy in message
