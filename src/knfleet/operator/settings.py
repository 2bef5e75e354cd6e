"""How the operator is set up: the environment and ConfigMaps that the Knative Operator reads."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from knfleet.api import durations
from knfleet.api.knative.verification import DEFAULT_IMAGE, is_image
from knfleet.api.meta import Object
from knfleet.kube import supported_versions
from knfleet.runtime.leader.lease_rules import LeaseTiming

MINIMUM_KUBERNETES = supported_versions.MINIMUM
LOGGER = "knative-operator"
LEASE = "knative-operator.knative.dev.operator.pkg.reconciler.knativeserving.reconciler.00-of-01"
"""The Go operator's own: while it leads we wait, and the other way round."""
NAMESPACE = "knative-operator"
HEALTH_PORT = 8080
METRICS_PORT = 9090
THREADS = 8
VERIFY_IMAGE = "KNFLEET_VERIFY_IMAGE"
"""The environment variable for the image of verifications."""
POLL_SECONDS = 10.0
SHORTEST_POLL_SECONDS = 1.0

LEVELS = {"dpanic": "critical", "panic": "critical", "fatal": "critical", "warn": "warning"}


class SettingError(Exception):
    """A setting of the process makes no sense; the message says which, and what would."""


class OperatorSettings(Struct, frozen=True):
    """What the process was started with, beside its connection and release files."""

    system_namespace: str = NAMESPACE
    pod_name: str = ""
    config_logging: str = "config-logging"
    config_observability: str = "config-observability"
    config_leader_election: str = "config-leader-election"
    resource_label: str = ""
    minimum_kubernetes: str = ""
    """What the environment demands; it is handed on to Knative as well."""
    threads: int = THREADS
    health_port: int = HEALTH_PORT
    metrics_port: int = METRICS_PORT
    metrics_host: str = ""
    disable_ha: bool = False
    share_spokes: bool = False
    """Whether all replicas work, each on its part of the spokes, and not the leader alone."""
    install_crds: bool = False
    verbosity: int = 0
    poll_seconds: float = POLL_SECONDS
    """When to look again at what is not ready on a spoke, should no watch tell of it before."""
    requests_per_second: float = 0
    """What the hub is asked at most; 0 means no limit."""
    burst: int = 0
    verify_image: str = DEFAULT_IMAGE
    """The image of verifications that name none."""


def from_environment(environment: Mapping[str, str], namespace: str = "") -> OperatorSettings:
    """The settings that the environment makes; `namespace` is the pod's own, if it is one."""
    get = environment.get
    return OperatorSettings(
        system_namespace=get("SYSTEM_NAMESPACE") or namespace or NAMESPACE,
        pod_name=get("POD_NAME") or get("HOSTNAME", ""),
        config_logging=get("CONFIG_LOGGING_NAME") or "config-logging",
        config_observability=get("CONFIG_OBSERVABILITY_NAME") or "config-observability",
        config_leader_election=get("CONFIG_LEADERELECTION_NAME") or "config-leader-election",
        resource_label=get("SYSTEM_RESOURCE_LABEL", ""),
        minimum_kubernetes=get("KUBERNETES_MIN_VERSION", ""),
        threads=number(environment, "K_THREADS_PER_CONTROLLER", THREADS),
        metrics_port=number(environment, "METRICS_PROMETHEUS_PORT", METRICS_PORT),
        metrics_host=get("METRICS_PROMETHEUS_HOST", ""),
        verify_image=verify_image(get(VERIFY_IMAGE) or DEFAULT_IMAGE),
    )


def verify_image(text: str) -> str:
    """The image of verifications; raises `SettingError` when it is no name of an image."""
    if not is_image(text):
        raise SettingError(
            f"{text!r} is not the name of an image; set --verify-image or {VERIFY_IMAGE} to one,"
            f" such as {DEFAULT_IMAGE}"
        )
    return text


def number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise SettingError(f"{name}={text}: write a number of at least 1")
    return int(text)


def is_too_old(version: str, minimum: str) -> bool:
    """Whether a server's version is below another; pre-releases count as their release."""
    return version_numbers(version) < version_numbers(minimum)


def version_numbers(version: str) -> tuple[int, int, int]:
    """Major, minor and patch of a Kubernetes version."""
    found = supported_versions.numbers(version)
    if found is None:
        raise SettingError(f"{version!r} is not a version such as {MINIMUM_KUBERNETES}")
    return found


def duration_seconds(text: str) -> float:
    """Seconds of a duration as Go writes it: 60s, 1m30s, 500ms."""
    seconds = durations.seconds(text)
    if seconds is None:
        raise SettingError(f"{text!r} is not a duration such as 60s or 1m30s")
    return seconds


def poll_seconds(text: str) -> float:
    """The period of a flag; one that is too short counts as none, as upstream."""
    seconds = duration_seconds(text)
    return seconds if seconds >= SHORTEST_POLL_SECONDS else POLL_SECONDS


def data_of(manifest: Object | None) -> dict[str, str]:
    """The entries of a ConfigMap; none when it is not there."""
    return {} if manifest is None else manifest.get("data") or {}


def log_level(data: Mapping[str, str], verbosity: int = 0) -> str:
    """The level that config-logging asks for; klog's `-v` of 4 and more means debug."""
    if verbosity >= 4:
        return "debug"
    level = data.get(f"loglevel.{LOGGER}", "")
    if not level:
        try:
            level = str(msgspec.json.decode(data.get("zap-logger-config", "{}"))["level"])
        except (msgspec.DecodeError, KeyError, TypeError):
            level = "info"
    return LEVELS.get(level.lower(), level.lower())


def timing(data: Mapping[str, str]) -> LeaseTiming:
    """The times of the election that config-leader-election asks for, else our own."""
    default = LeaseTiming()
    try:
        return LeaseTiming(
            int(seconds(data, "lease-duration", default.lease_seconds)),
            seconds(data, "renew-deadline", default.renew_seconds),
            seconds(data, "retry-period", default.retry_seconds),
        )
    except ValueError as error:
        raise SettingError(f"config-leader-election: {error}") from error


def seconds(data: Mapping[str, str], name: str, default: float) -> float:
    return duration_seconds(data[name].strip()) if data.get(name) else default


def wants_metrics(data: Mapping[str, str]) -> bool:
    """Whether config-observability asks for a metrics server of its own."""
    return data.get("metrics-protocol", "").strip() == "prometheus"
