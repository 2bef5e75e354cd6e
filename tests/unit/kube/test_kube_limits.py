"""What is not sent: more than a limit allows, and what a server will refuse each time."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Object
from knfleet.cli.process.operator import connect
from knfleet.kube.client.rate_limit import RateLimit
from knfleet.kube.errors import ConfigError, RequestTimeout, ServerError
from knfleet.kube.yaml import dump_all
from testbed.fakes.clients import QUICK, client_for
from testbed.fakes.server import Server, answer, status

CM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}}


def test_a_burst_is_free_and_then_every_turn_has_its_time() -> None:
    """Two at once, then one every tenth of a second; time that passes gives turns back."""
    rate = RateLimit(10, burst=2)

    waits = [rate.wait_seconds(100.0) for _ in range(4)]
    later = [rate.wait_seconds(200.0) for _ in range(3)]

    assert waits == pytest.approx([0, 0, 0.1, 0.2])
    assert later == pytest.approx([0, 0, 0.1])


async def test_without_a_limit_nobody_waits() -> None:
    """However many there are."""
    rate = RateLimit(0)

    for _ in range(10_000):
        await rate.acquire()


async def test_requests_beyond_the_limit_wait_and_the_urgent_do_not() -> None:
    """A limit that somebody set too low is named when it costs a deadline."""
    slow = replace(QUICK, requests_per_second=0.001, burst=2)
    async with Server(answer(CM)) as server, client_for(server.url, options=slow) as client:
        for _ in range(2):
            await client.get(CONFIG_MAPS, "a", "n")
        with pytest.raises(RequestTimeout, match="its turn by the limit of requests"):
            await client.get(CONFIG_MAPS, "a", "n", deadline=0.2)
        await client.urgent.get(CONFIG_MAPS, "a", "n")

        assert len(server.requests) == 3


@pytest.mark.parametrize(
    "words", [".spec.x: field not declared in schema", "failed to create typed patch object (a)"]
)
async def test_an_object_that_is_wrong_in_itself_is_sent_once(words: str) -> None:
    """The server says it with a 500, as if the next attempt could be better."""
    refused = status(500, "InternalError", words)
    async with Server(refused, answer(CM)) as server, client_for(server.url) as client:
        with pytest.raises(ServerError, match=r"field not declared|typed patch"):
            await client.apply(CONFIG_MAPS, CM)

        assert len(server.requests) == 1


def test_a_cluster_of_the_kubeconfig_can_be_named(tmp_path: Path) -> None:
    """With the user of the context; one that is not there is refused with those that are."""
    config: Object = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "a", "user": "u"}}],
        "clusters": [
            {"name": name, "cluster": {"server": f"https://{name}.example.com"}} for name in "ab"
        ],
        "users": [{"name": "u", "user": {}}],
    }
    path = tmp_path / "config"
    path.write_text(dump_all([config]))

    assert connect(path, None, None).endpoint.server == "https://a.example.com"
    assert connect(path, None, None, cluster="b").endpoint.server == "https://b.example.com"
    with pytest.raises(ConfigError, match="there is no cluster 'c'; there are: a, b"):
        connect(path, None, None, cluster="c")
