"""What answers and failures of a spoke mean."""

from datetime import UTC, datetime, timedelta

import pytest

from knfleet.api.core import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CRDS
from knfleet.api.meta import Key
from knfleet.clusters import access_errors
from knfleet.clusters.access_resolver import ResolvedAccess
from knfleet.clusters.connection_state import Phase, failure
from knfleet.clusters.plugin_credentials import ahead_seconds
from knfleet.clusters.preflight import NEEDED, PolicyRule, PreflightResult, objection
from knfleet.kube.auth.credentials import Credential
from knfleet.kube.auth.exec_plugin import ExecPlugin
from knfleet.kube.endpoint import Endpoint
from knfleet.kube.errors import (
    BadResponse,
    ConfigError,
    ConnectionRefused,
    CredentialError,
    Forbidden,
    KubeError,
    RequestTimeout,
    ServerError,
    TlsFailed,
    Unauthorized,
)

ACCESS = ResolvedAccess(Endpoint("https://spoke.example"), ExecPlugin("/plugins/reader"), "reader")
PROFILE = Key("fleet", "spoke1")
FAILED, REMOTE = access_errors.ACCESS_PROVIDER_FAILED, access_errors.REMOTE_CLIENT_CREATION_FAILED


@pytest.mark.parametrize(
    ("error", "phase", "reason"),
    [
        (CredentialError("exit code 3"), Phase.REFUSED, FAILED),
        (Unauthorized("who"), Phase.REFUSED, REMOTE),
        (Forbidden("no"), Phase.REFUSED, REMOTE),
        (TlsFailed("self-signed"), Phase.REFUSED, REMOTE),
        (ConfigError("odd"), Phase.REFUSED, REMOTE),
        (ConnectionRefused("nobody"), Phase.LOST, REMOTE),
        (RequestTimeout("late"), Phase.LOST, REMOTE),
        (ServerError("etcd"), Phase.LOST, REMOTE),
        (BadResponse("<html>"), Phase.LOST, REMOTE),
    ],
)
def test_every_failure_has_a_phase_a_reason_and_something_next(
    error: KubeError, phase: Phase, reason: str
):
    """The message names the profile, what came back, and what happens now."""
    verdict = failure(error, PROFILE, ACCESS)

    assert (verdict.phase, verdict.reason) == (phase, reason)
    assert "fleet/spoke1" in verdict.message
    assert str(error) in verdict.message
    assert any(next_ in verdict.message for next_ in ("within", "goes on when"))


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        ("v1.33.9", True),
        ("v1.34.0", False),
        ("v1.34.0-rc.1", False),
        ("v1.34.3+k3s1", False),
        ("v1.100.0", False),
        ("v2.0.0", False),
        ("", False),
        ("unheard of", False),
    ],
)
def test_an_old_kubernetes_is_refused_and_an_unknown_one_is_not(version: str, refused: bool):
    """With both versions, and how to go on all the same."""
    found = objection(PreflightResult(version, "uid"), "ClusterProfile fleet/spoke1", "v1.34.0")

    assert (found is not None) is refused
    if found is not None:
        assert f"Kubernetes {version} is older than v1.34.0" in str(found)
        assert "KUBERNETES_MIN_VERSION" in str(found)
        assert objection(PreflightResult(version, "uid"), "", "v1.30.0") is None


def test_missing_rights_are_named_kind_by_kind():
    """So that somebody can grant them."""
    missing = ((CRDS, "create"), (CRDS, "patch"), (CLUSTER_ROLES, "create"))
    found = objection(
        PreflightResult("v1.35.0", "", missing), "ClusterProfile fleet/spoke1", "v1.34.0"
    )

    assert found is not None
    assert found.reason == REMOTE
    assert (
        "create, patch customresourcedefinitions.apiextensions.k8s.io;"
        " create clusterroles.rbac.authorization.k8s.io" in str(found)
    )


def test_a_rule_for_everything_gives_every_right():
    """And one for some things gives those."""
    everything = PolicyRule(["*"], ["*"], ["*"])
    roles = PolicyRule(["create", "patch"], ["rbac.authorization.k8s.io"], ["clusterrolebindings"])

    assert all(everything.allows(right) for right in NEEDED)
    assert [right for right in NEEDED if roles.allows(right)] == [
        (CLUSTER_ROLE_BINDINGS, "create"),
        (CLUSTER_ROLE_BINDINGS, "patch"),
    ]


@pytest.mark.parametrize(("life", "ahead"), [(3600, 3510), (120, 60), (8, 2)])
def test_the_next_credential_is_fetched_before_the_current_one_is_too_old(life: int, ahead: int):
    """Half a minute before its end it is not used any more."""
    now = datetime.now(UTC)

    assert ahead_seconds(Credential(expires=now + timedelta(seconds=life)), now) == ahead
    assert ahead_seconds(Credential(), now) == float("inf")
