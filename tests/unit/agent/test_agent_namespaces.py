"""The namespaces that sets want on a cluster."""

import hashlib
from datetime import UTC, datetime

from knfleet.agent.status.managed_namespaces import hub_label, patch_of
from knfleet.api.cluster.managedcluster import ManagedCluster
from knfleet.api.meta import Object
from knfleet.api.schema import decode

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def cluster(*wanted: Object) -> ManagedCluster:
    """A cluster on which sets want namespaces."""
    manifest = {
        "metadata": {"name": "c1", "resourceVersion": "7"},
        "status": {"managedNamespaces": list(wanted)},
    }
    return decode(manifest, ManagedCluster)


def test_a_hub_has_a_label_of_its_own_that_is_short_enough():
    prefix, _, name = hub_label("https://hub:6443").partition("/")

    assert prefix == "clusterset.open-cluster-management.io"
    assert len(name) == 63
    assert hashlib.sha256(b"https://hub:6443").hexdigest().startswith(name)
    assert hub_label("https://hub:6444") != hub_label("https://hub:6443")


def test_it_is_told_once_how_each_namespace_stands():
    wanted = [
        {"name": "good", "clusterSet": "one"},
        {"name": "bad", "clusterSet": "one"},
        {"name": "good", "clusterSet": "two"},
    ]
    problems = {"good": "", "bad": "it is forbidden"}

    patch = patch_of(cluster(*wanted), problems, NOW)

    told: list[Object] = patch["status"]["managedNamespaces"]
    assert [(each["name"], each["clusterSet"]) for each in told] == [
        (each["name"], each["clusterSet"]) for each in wanted
    ]
    conditions = [each["conditions"][0] for each in told]
    assert [(each["status"], each["reason"]) for each in conditions] == [
        ("True", "NamespaceApplied"),
        ("False", "NamespaceApplyFailed"),
        ("True", "NamespaceApplied"),
    ]
    assert conditions[1]["message"] == "it is forbidden"
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch_of(cluster(*told), problems, NOW) == {}
