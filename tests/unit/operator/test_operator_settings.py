"""The environment, flags and ConfigMaps of the operator."""

import pytest

from knfleet.api.knative.verification import DEFAULT_IMAGE
from knfleet.cli.process.operator import doubled
from knfleet.operator.settings import (
    OperatorSettings,
    SettingError,
    duration_seconds,
    from_environment,
    is_too_old,
    log_level,
    timing,
    wants_metrics,
)
from knfleet.runtime.leader.lease_rules import LeaseTiming


def test_the_environment_is_the_knative_operators() -> None:
    """Every name that its manifests set is read."""
    settings = from_environment(
        {
            "SYSTEM_NAMESPACE": "ops",
            "POD_NAME": "operator-0",
            "CONFIG_LOGGING_NAME": "logging",
            "CONFIG_OBSERVABILITY_NAME": "observability",
            "CONFIG_LEADERELECTION_NAME": "election",
            "KUBERNETES_MIN_VERSION": "v1.30.0",
            "K_THREADS_PER_CONTROLLER": "3",
            "METRICS_PROMETHEUS_PORT": "9999",
            "METRICS_DOMAIN": "knative.dev/operator",
        }
    )

    assert settings == OperatorSettings(
        system_namespace="ops",
        pod_name="operator-0",
        config_logging="logging",
        config_observability="observability",
        config_leader_election="election",
        minimum_kubernetes="v1.30.0",
        threads=3,
        metrics_port=9999,
    )


def test_without_an_environment_the_pods_own_namespace_counts() -> None:
    """The Knative Operator would panic."""
    assert from_environment({}, "mine").system_namespace == "mine"
    assert from_environment({}).system_namespace == "knative-operator"


def test_a_number_that_is_none_is_named() -> None:
    """With the variable and what would be right."""
    with pytest.raises(SettingError, match="K_THREADS_PER_CONTROLLER=many: write a number"):
        from_environment({"K_THREADS_PER_CONTROLLER": "many"})


def test_the_image_of_verifications_is_set_for_all() -> None:
    """Unless a request names one; what is none is refused at the start."""
    named = from_environment({"KNFLEET_VERIFY_IMAGE": "registry.example.com/knfleet:1.0"})

    assert named.verify_image == "registry.example.com/knfleet:1.0"
    assert from_environment({}).verify_image == DEFAULT_IMAGE
    with pytest.raises(SettingError, match="'--rm x' is not the name of an image; set --verify-im"):
        from_environment({"KNFLEET_VERIFY_IMAGE": "--rm x"})


@pytest.mark.parametrize(
    ("version", "minimum", "old"),
    [
        ("v1.35.8", "v1.34.0", False),
        ("v1.34.0-rc.1", "v1.34.0", False),
        ("v1.33.9", "v1.34.0", True),
        ("v1.34.2-gke.100+build", "1.34.3", True),
    ],
)
def test_versions_are_compared_without_what_vendors_append(
    version: str, minimum: str, old: bool
) -> None:
    """A pre-release counts as its release."""
    assert is_too_old(version, minimum) is old


def test_durations_are_gos() -> None:
    """And nothing else."""
    assert duration_seconds("1m30s") == 90
    assert duration_seconds("500ms") == 0.5
    for wrong in ("", "10", "ten seconds", "1d"):
        with pytest.raises(SettingError, match="duration"):
            duration_seconds(wrong)


@pytest.mark.parametrize(
    ("data", "level"),
    [
        ({}, "info"),
        ({"loglevel.knative-operator": "debug"}, "debug"),
        ({"zap-logger-config": '{"level": "warn"}'}, "warning"),
        ({"zap-logger-config": "no json"}, "info"),
        ({"loglevel.knative-operator": "error", "zap-logger-config": '{"level":"x"}'}, "error"),
    ],
)
def test_the_log_level_comes_from_config_logging(data: dict[str, str], level: str) -> None:
    """In either of its two forms."""
    assert log_level(data) == level
    assert log_level(data, verbosity=5) == "debug"


def test_the_election_is_timed_by_its_config_map() -> None:
    """Ours are shorter when it says nothing, and nonsense is refused."""
    asked = {"lease-duration": "60s", "renew-deadline": "40s", "retry-period": "10s"}

    assert timing(asked) == LeaseTiming(60, 40, 10)
    assert timing({"_example": "…"}) == LeaseTiming()
    with pytest.raises(SettingError, match="config-leader-election"):
        timing({"lease-duration": "5s"})


def test_metrics_get_a_port_when_prometheus_is_asked_for() -> None:
    """As in config-observability."""
    assert wants_metrics({"metrics-protocol": "prometheus"})
    assert not wants_metrics({"metrics-protocol": "none"})
    assert not wants_metrics({})


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("-kubeconfig", "--kubeconfig"),
        ("-v=2", "--v=2"),
        ("-v", "--v"),
        ("--disable-ha", "--disable-ha"),
        ("-h", "-h"),
        ("-", "-"),
        ("value", "value"),
    ],
)
def test_flags_may_have_one_dash(given: str, read: str) -> None:
    """As Go programs take them."""
    assert doubled(given) == read
