"""What probes ask, and what their answers add up to."""

import pytest

from knfleet.api.meta import Object
from knfleet.dev.node.containers.container_probes import Probe, ProbeCounter, probe_of
from knfleet.dev.node.pods.volumes import UnsupportedVolume

CONTAINER: Object = {"name": "main", "ports": [{"name": "web", "containerPort": 8080}]}


def test_a_probe_is_aimed_at_the_pods_own_address() -> None:
    """Ports have names or numbers, and defaults are Kubernetes'."""
    get: Object = {"path": "/ready", "port": "web", "scheme": "HTTPS"}
    probe = probe_of({"httpGet": get, "periodSeconds": 3}, CONTAINER, "127.64.1.1")

    assert probe.url == "https://127.64.1.1:8080/ready"
    assert (probe.period_seconds, probe.timeout_seconds, probe.failure_threshold) == (3, 1, 3)
    assert probe_of({"tcpSocket": {"port": 9}}, CONTAINER, "h").address == ("h", 9)
    assert probe_of({"exec": {"command": ["true"]}}, CONTAINER, "h").command == ("true",)


@pytest.mark.parametrize(
    "manifest", [{"grpc": {"port": 1}}, {"httpGet": {"port": "none"}}, {"tcpSocket": {"port": "x"}}]
)
def test_a_probe_that_cannot_be_performed_is_refused(manifest: Object) -> None:
    """Before the container starts."""
    with pytest.raises(UnsupportedVolume, match='container "main"'):
        probe_of(manifest, CONTAINER, "h")


def test_a_probe_turns_when_its_threshold_is_met_in_a_row() -> None:
    """One good answer in between starts the count again."""
    tally = ProbeCounter(Probe(success_threshold=1, failure_threshold=3), passing=True)

    turned = [tally.count(success=each) for each in (False, False, True, False, False, False)]

    assert turned == [False, False, False, False, False, True]
    assert not tally.passing
    assert tally.count(success=True)
    assert tally.passing
