"""The CRD of KnativeFleet on a real API server: what it stores, adds and refuses."""

from typing import Any

import pytest

from knfleet.api.fleet.fleet_names import KNATIVE_FLEETS
from knfleet.api.fleet.knativefleet import KnativeFleet
from knfleet.api.meta import Key, Object
from knfleet.api.schema import decode
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Invalid

NOTHING: Object = {}
MINIMAL: Object = {
    "clusters": {"namespace": "fleet", "selector": {}},
    "serving": {"spec": {"version": "1.23.0"}},
}
EVERYTHING: Object = {
    "clusters": {"namespace": "fleet", "placementRef": {"name": "prod"}},
    "serving": {
        "namespace": "serving",
        "spec": {
            "version": "1.23.0",
            "ingress": {"kourier": {"enabled": True}},
            "config": {"domain": {"{{cluster.name}}.example.com": ""}},
        },
    },
    "eventing": {"spec": {"version": "1.23"}},
    "overrides": [
        {
            "name": "eu",
            "clusters": {"selector": {"matchLabels": {"region": "eu"}}},
            "serving": {"high-availability": {"replicas": 2}, "registry": None},
        },
        {"name": "one", "clusters": {"names": ["a"]}, "eventing": {"anything": ["goes"]}},
    ],
    "strategy": {
        "maxConcurrency": "25%",
        "maxFailures": 1,
        "minSuccessTime": "10m",
        "progressDeadline": "None",
        "betweenWaves": "1m30s",
        "gates": [
            {
                "name": "errors",
                "prometheus": {"url": "http://p:9090/x", "query": "up", "min": "0.5", "max": "-1"},
                "interval": "5s",
                "failureLimit": 1,
            },
            {"name": "ask", "webhook": {"url": "https://x"}},
        ],
        "waves": [
            {"name": "canary", "names": ["a"], "maxConcurrency": 1, "maxFailures": "0%"},
            {"name": "groups", "decisionGroups": ["first"]},
            {"name": "eu", "selector": {"matchLabels": {"region": "eu"}}},
        ],
    },
    "onFailure": {"action": "Rollback", "scope": "All"},
    "paused": True,
    "driftPolicy": "Keep",
    "joining": "Wave",
    "deletionPolicy": "Orphan",
    "revisionHistoryLimit": 3,
}


def written(name: str, spec: Object) -> Object:
    return {
        "apiVersion": KNATIVE_FLEETS.api_version,
        "kind": KNATIVE_FLEETS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def test_the_server_stores_everything_and_adds_defaults(fleet: Client):
    await fleet.create(KNATIVE_FLEETS, written("whole", EVERYTHING))
    stored = await fleet.get(KNATIVE_FLEETS, "whole")
    made = await fleet.create(KNATIVE_FLEETS, written("least", MINIMAL), "", dry_run=True)

    # A null in a merge patch removes a field, so it has to be stored.
    assert stored["spec"]["overrides"][0]["serving"]["registry"] is None
    read = decode(stored, KnativeFleet)
    assert (read.spec.strategy.between_waves, read.spec.on_failure.scope) == ("1m30s", "All")
    assert made["spec"]["driftPolicy"] == "Enforce"
    assert made["spec"]["serving"]["namespace"] == "knative-serving"


def gate(**fields: str) -> Object:
    """A gate that asks Prometheus."""
    return {"name": "metrics", "prometheus": fields}


def changed(path: str, value: Any) -> Object:
    """The whole spec with one field replaced; None removes it."""
    spec: Object = {**EVERYTHING}
    *parents, last = path.split(".")
    node = spec
    for name in parents:
        inner = node[name]
        node[name] = [*inner] if isinstance(inner, list) else {**inner}
        node = node[name]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (changed("clusters.names", ["a"]), "exactly one of placementRef, selector, names"),
        (changed("clusters.placementRef", None), "exactly one of placementRef, selector, names"),
        ({"clusters": MINIMAL["clusters"]}, "at least one of serving and eventing"),
        (changed("eventing", None), "the fleet must have the same"),
        (
            {**MINIMAL, "overrides": [{"name": "x", "clusters": {"names": ["a"]}}]},
            "an override needs serving or eventing",
        ),
        (
            {**MINIMAL, "overrides": [{"name": "x", "clusters": NOTHING, "serving": NOTHING}]},
            "exactly one of selector, names",
        ),
        (
            changed("serving.spec", {"clusterProfileRef": {"name": "a", "namespace": "b"}}),
            "clusterProfileRef is set for each cluster",
        ),
        (changed("strategy.maxConcurrency", 0), "greater than or equal to 1"),
        (changed("strategy.maxConcurrency", "0%"), "maxConcurrency"),
        (changed("strategy.minSuccessTime", "soon"), "minSuccessTime"),
        (changed("strategy.progressDeadline", "never"), "progressDeadline"),
        (changed("strategy.waves", [{"name": "x"}]), "exactly one of selector, names and"),
        (changed("strategy.waves", [{"name": "remaining", "names": ["a"]}]), "in no other one"),
        (
            {**MINIMAL, "strategy": {"waves": [{"name": "x", "decisionGroups": ["g"]}]}},
            "decisionGroups need clusters.placementRef",
        ),
        (changed("strategy.gates", [{"name": "x"}]), "exactly one of prometheus, webhook"),
        (changed("strategy.gates", [gate(url="ftp://x", query="x", max="1")]), "prometheus.url"),
        (
            changed("strategy.gates", [gate(url="http://u:p@x", query="x", max="1")]),
            "prometheus.url",
        ),
        (changed("strategy.gates", [gate(url="http://x", query="x")]), "one of min and max"),
        (changed("strategy.gates", [gate(url="http://x", query="x", max="1,5")]), "prometheus.max"),
        (changed("onFailure", {"action": "Halt", "scope": "All"}), "only for action Rollback"),
        (changed("onFailure.action", "Explode"), "onFailure.action"),
        (changed("driftPolicy", "Sometimes"), "driftPolicy"),
    ],
)
async def test_what_makes_no_sense_is_refused(fleet: Client, spec: Object, message: str):
    with pytest.raises(Invalid, match=message):
        await fleet.create(KNATIVE_FLEETS, written("wrong", spec), dry_run=True)


async def test_namespaces_cannot_be_changed(fleet: Client):
    await fleet.create(KNATIVE_FLEETS, written("fixed", MINIMAL))

    for spec in ({"clusters": {"namespace": "other"}}, {"serving": {"namespace": "other"}}):
        with pytest.raises(Invalid, match="it is immutable"):
            await fleet.patch(KNATIVE_FLEETS, Key("", "fixed"), {"spec": spec})


async def test_a_name_that_is_no_label_value_is_refused(fleet: Client):
    with pytest.raises(Invalid, match="at most 63 characters"):
        await fleet.create(KNATIVE_FLEETS, written("n" * 64, MINIMAL), dry_run=True)
