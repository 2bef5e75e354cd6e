"""The page about metrics lists all that there are; alerts and the dashboard ask for no more."""

import ast
import re
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from msgspec import Struct
from prometheus_client.metrics import MetricWrapperBase

from knfleet.api.meta import Key, Object
from knfleet.clusters.cluster_metrics import ClusterMetrics
from knfleet.clusters.connection_state import ClusterState, Phase
from knfleet.clusters.pool import ClusterPool
from knfleet.kube import yaml
from knfleet.operator.controller import count_conditions
from knfleet.operator.resource_metrics import ResourceMetrics
from knfleet.runtime.metrics import Metrics
from tests.docs.pages import DOCS, ROOT

MAKERS = {"counter", "gauge", "histogram", "family"}
SUFFIXES = ("_bucket", "_count", "_sum")
ROW = re.compile(r"^\| `(knfleet_\w+)` \| (\w+) \|([^|]*)\| [^|]+ \|$")
SELECTED = re.compile(r"(knfleet_\w+|process_\w+)\s*(?:\{([^}]*)\})?")
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
RESOURCE: Object = {
    "apiVersion": "operator.knative.dev/v1beta1",
    "kind": "KnativeServing",
    "metadata": {"name": "n", "namespace": "s"},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]
    },
}
STATE = ClusterState(profile=Key("p", "c"), phase=Phase.UP, since=MOMENT, last_contact=MOMENT)
ADDED = {"job", "instance", "le"}
"""Labels that Prometheus adds, or histograms have."""


class Told(Struct, frozen=True):
    """What is told of one metric."""

    type: str
    labels: tuple[str, ...]


def exported() -> dict[str, Told]:
    """Every metric that a process of ours has, as Prometheus names it."""
    metrics = Metrics()
    count_conditions(metrics, [])
    ClusterMetrics(metrics, cast("ClusterPool", None))
    gauges = ResourceMetrics(lambda: [RESOURCE], lambda: [STATE], lambda: MOMENT)
    gauges.snapshot()
    found = {each.name: Told(each.type, tuple(each.samples[0].labels)) for each in gauges.collect()}
    collectors = cast("list[object]", [*vars(metrics.registry)["_collector_to_names"]])
    for collector in collectors:
        if not isinstance(collector, MetricWrapperBase):
            continue
        (family,) = collector.describe()
        suffix = "_total" if family.type == "counter" else ""
        labels = cast("tuple[str, ...]", vars(collector)["_labelnames"])
        found[f"{family.name}{suffix}"] = Told(family.type, labels)
    return found


def processes() -> set[str]:
    """The metrics of the process itself."""
    families = [each for each in Metrics().registry.collect() if each.name.startswith("process_")]
    return {sample.name for each in families for sample in each.samples}


def test_the_page_lists_every_metric_with_type_and_labels():
    """Neither more nor less."""
    rows = [ROW.match(line) for line in (DOCS / "metrics.md").read_text().splitlines()]
    listed = {
        row[1]: Told(row[2], tuple(re.findall(r"`(\w+)`", row[3])))
        for row in rows
        if row is not None
    }

    assert listed == exported()


def test_the_page_lists_the_metrics_of_the_process():
    listed = set(re.findall(r"`(process_\w+)`", (DOCS / "metrics.md").read_text()))

    assert listed == processes()


def test_no_metric_is_made_that_this_test_does_not_know():
    """Wherever in the code it is made."""
    made: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            maker = node.func.attr if isinstance(node.func, ast.Attribute) else None
            maker = node.func.id if isinstance(node.func, ast.Name) else maker
            first = node.args[0]
            if maker in MAKERS and isinstance(first, ast.Constant):
                seconds = "_seconds" if maker == "histogram" else ""
                total = "_total" if maker == "counter" else ""
                made.add(f"knfleet_{first.value}{seconds}{total}")

    assert made == exported().keys()


def unknown(expression: str) -> list[str]:
    """What a query asks for that there is not."""
    known = exported()
    found: list[str] = []
    for name, selectors in SELECTED.findall(expression):
        if name in processes():
            continue
        bare = next((name.removesuffix(each) for each in SUFFIXES if name.endswith(each)), name)
        if bare not in known:
            found.append(name)
            continue
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
        found += [f"{name}{{{label}}}" for label in asked - {*known[bare].labels, *ADDED}]
    return found


def test_a_query_for_what_there_is_not_is_found():
    """What the next tests are good for."""
    assert unknown('sum(knfleet_nothing{job="x"})') == ["knfleet_nothing"]
    assert unknown('knfleet_leader{cluster="x"}') == ["knfleet_leader{cluster}"]
    assert unknown('rate(knfleet_reconcile_duration_seconds_bucket{controller="x"}[5m])') == []


def dashboard() -> dict[str, Any]:
    """The dashboard for Grafana."""
    return msgspec.json.decode((DOCS / "alerts" / "knfleet-dashboard.json").read_bytes())


def queries() -> list[str]:
    """All queries of the dashboard, those of its variables included."""
    board = dashboard()
    panels = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    variables = [
        each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"
    ]
    return [*panels, *variables]


@pytest.mark.parametrize("query", queries())
def test_the_dashboard_asks_for_what_there_is(query: str):
    """A renamed metric would make an empty panel."""
    assert unknown(query) == []
    assert SELECTED.search(query)


def test_the_dashboard_can_be_imported_anywhere():
    """No data source by name, every panel once, none over another, variables that exist."""
    board = dashboard()
    panels = board["panels"]
    cells = [
        (x, y)
        for each in panels
        for x in range(each["gridPos"]["x"], each["gridPos"]["x"] + each["gridPos"]["w"])
        for y in range(each["gridPos"]["y"], each["gridPos"]["y"] + each["gridPos"]["h"])
    ]
    variables = {each["name"] for each in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", msgspec.json.encode(panels).decode()))

    assert len({each["id"] for each in panels}) == len(panels)
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert used <= variables
    assert {each["datasource"]["uid"] for each in panels if each["type"] != "row"} == {
        "${datasource}"
    }


def test_alerts_ask_for_what_there_is():
    """With the labels that they name in their texts."""
    text = (DOCS / "alerts" / "knfleet-rules.yaml").read_bytes()
    (group,) = yaml.load(text)["groups"]
    for rule in group["rules"]:
        assert unknown(rule["expr"]) == [], rule["alert"]
        (metric,) = set(re.findall(r"knfleet_\w+", rule["expr"]))
        named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert named <= set(exported()[metric].labels), rule["alert"]
