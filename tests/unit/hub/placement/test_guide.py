"""Placements that the getting started guide of Open Cluster Management recommends."""

from tests.unit.hub.placement.samples import fleet, manifest, selected, taint

UNREACHABLE = "cluster.open-cluster-management.io/unreachable"
UNAVAILABLE = "cluster.open-cluster-management.io/unavailable"
NOT_LOCAL = [
    {
        "requiredClusterSelector": {
            "labelSelector": {
                "matchExpressions": [
                    {"key": "local-cluster", "operator": "NotIn", "values": ["true"]}
                ]
            }
        }
    }
]
LOCAL = [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"local-cluster": "true"}}}}]


def test_placements_of_the_getting_started_guide():
    known = fleet(
        manifest("hub", {"local-cluster": "true"}),
        manifest("c1"),
        manifest("c2", taints=[taint(UNREACHABLE)]),
    )
    tolerations = [
        {"key": UNREACHABLE, "operator": "Equal"},
        {"key": UNAVAILABLE, "operator": "Equal"},
    ]

    assert selected(known, predicates=LOCAL) == ["hub"]
    assert selected(known, predicates=NOT_LOCAL) == ["c1"]
    assert selected(known, predicates=NOT_LOCAL, tolerations=tolerations) == ["c1", "c2"]
