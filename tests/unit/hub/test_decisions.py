"""Sets, rights, leaving and profiles: small decisions of the hub."""

import base64
from datetime import timedelta
from typing import Any

import pytest

from knfleet.api.cluster.clusterset import ManagedClusterSet
from knfleet.api.cluster.managedcluster import AVAILABLE, CLEANUP_PRIORITY, FORCE_DETACH, SET_LABEL
from knfleet.api.conditions import StandardCondition, put
from knfleet.api.inventory import ProfileStatus
from knfleet.api.knative.conditions import timestamp
from knfleet.api.meta import Key, Object
from knfleet.api.operator import ClusterManager
from knfleet.api.schema import decode
from knfleet.hub.clustermanager.status import status_patch
from knfleet.hub.profiles.cluster_profile import access_of, status
from knfleet.hub.registration.controller import member_namespaces, wanted_finalizers
from knfleet.hub.registration.deletion import is_abandoned, next_group, priority
from knfleet.hub.registration.rbac import SHARED_ROLES, cluster_rules, role_bindings, role_name
from knfleet.hub.rights import hub_rules
from knfleet.install.hub_manifests import hub_objects, related_resources
from tests.unit.hub.samples import NOW, cluster, said


def cluster_set(name: str, **spec: Any) -> ManagedClusterSet:
    """A set."""
    return decode({"metadata": {"name": name}, "spec": spec}, ManagedClusterSet)


def by_labels(**selector: Any) -> ManagedClusterSet:
    """A set that selects by labels."""
    kind = {"selectorType": "LabelSelector", "labelSelector": selector}
    return cluster_set("some", clusterSelector=kind)


def needs(key: str, operator: str, *values: str) -> ManagedClusterSet:
    """A set that selects by one condition on a label."""
    return by_labels(matchExpressions=[{"key": key, "operator": operator, "values": list(values)}])


def test_a_set_has_the_clusters_that_it_selects():
    labels = {SET_LABEL: "mine", "env": "prod"}

    assert cluster_set("mine").has(labels)
    assert not cluster_set("other").has(labels)
    assert by_labels().has({})
    assert by_labels(matchLabels={"env": "prod"}).has(labels)
    assert not by_labels(matchLabels={"env": "dev"}).has(labels)
    assert needs("env", "In", "prod", "dev").has(labels)
    assert not needs("env", "NotIn", "prod").has(labels)
    assert needs("env", "Exists").has(labels)
    assert needs("zone", "DoesNotExist").has(labels)
    assert needs("zone", "NotIn", "a").has(labels)
    assert not needs("env", "Like", "prod").has(labels)


def test_namespaces_of_sets_keep_what_the_agent_says_about_them():
    known = {
        "name": "apps",
        "clusterSet": "mine",
        "conditions": [said("NamespaceAvailable", "True")],
    }
    about = cluster(meta={"labels": {SET_LABEL: "mine"}})
    about = decode(
        {
            "metadata": {"name": "c1", "labels": {SET_LABEL: "mine"}},
            "status": {"managedNamespaces": [known, {"name": "gone", "clusterSet": "mine"}]},
        },
        type(about),
    )
    sets = [
        cluster_set("mine", managedNamespaces=[{"name": "apps"}, {"name": "more"}]),
        cluster_set("other", managedNamespaces=[{"name": "not"}]),
    ]
    found = member_namespaces(about, sets)

    assert [(each.name, len(each.conditions)) for each in found] == [("apps", 1), ("more", 0)]


def test_finalizers_of_others_stay():
    ours = "cluster.open-cluster-management.io/"
    api, cleanup = f"{ours}api-resource-cleanup", f"{ours}resource-cleanup"
    fresh = cluster(meta={"finalizers": ["theirs"]})
    full = cluster(meta={"finalizers": [cleanup, "theirs", api]})

    assert wanted_finalizers(fresh, cleans_up=True) == ["theirs", api, cleanup]
    assert wanted_finalizers(full, cleans_up=True) == [cleanup, "theirs", api]
    assert wanted_finalizers(full, cleans_up=False) == ["theirs", api]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("100", 100), ("7", 7), ("101", 0), ("-1", 0), ("soon", 0), ("", 0), ("٣", 0)],
)
def test_a_priority_that_makes_no_sense_is_the_lowest(text: str, expected: int):
    assert priority({"metadata": {"annotations": {CLEANUP_PRIORITY: text}}}) == expected


def test_the_lowest_priority_leaves_first():
    def work(name: str, text: str) -> Object:
        return {"metadata": {"name": name, "annotations": {CLEANUP_PRIORITY: text}}}

    works = [work("b", "10"), work("c", "100"), work("a", "10")]

    assert [each["metadata"]["name"] for each in next_group(works)] == ["b", "a"]
    assert next_group([]) == []


@pytest.mark.parametrize(
    ("wanted", "conditions", "expected"),
    [
        (None, [said(AVAILABLE, "Unknown")], False),
        ("30m", [said(AVAILABLE, "Unknown")], True),
        ("2h", [said(AVAILABLE, "Unknown")], False),
        ("0s", [said(AVAILABLE, "True")], False),
        ("0s", [], True),
        ("at once", [said(AVAILABLE, "Unknown")], False),
    ],
)
def test_works_are_given_up_only_when_wanted_and_unreachable_for_so_long(
    wanted: str | None, conditions: list[Object], expected: bool
):
    annotations = {} if wanted is None else {FORCE_DETACH: wanted}

    assert is_abandoned(cluster(*conditions, annotations=annotations), NOW) is expected


def covers(held: list[Object], wanted: Object) -> bool:
    """Whether rules allow all that another allows, as Kubernetes asks before it lets one grant."""
    names = set(wanted.get("resourceNames") or [""])
    return all(
        any(
            group in each["apiGroups"]
            and resource in each["resources"]
            and verb in each["verbs"]
            and (not each.get("resourceNames") or names <= set(each["resourceNames"]))
            for each in held
        )
        for group in wanted["apiGroups"]
        for resource in wanted["resources"]
        for verb in wanted["verbs"]
    )


def test_the_hub_has_all_that_it_grants_and_no_way_to_grant_more():
    granted = [each for rules in SHARED_ROLES.values() for each in rules]
    granted += cluster_rules("c1", accepted=True) + cluster_rules("c1", accepted=False)
    held = hub_rules()

    assert [each for each in granted if not covers(held, each)] == []
    assert not any("escalate" in each["verbs"] or "*" in str(each) for each in held)
    bound = [each for each in held if "bind" in each["verbs"]]
    assert [each["resourceNames"] for each in bound] == [["knfleet:profile-tokens"]]
    secrets = [each for each in held if "secrets" in each["resources"]]
    assert [each["resourceNames"] for each in secrets] == [["knfleet-spoke-access"]]


def test_a_cluster_is_bound_by_both_of_its_groups():
    for binding in role_bindings("c1"):
        assert [each["name"] for each in binding["subjects"]] == [
            "system:open-cluster-management:c1",
            "open-cluster-management:c1",
        ]


def test_what_init_applies_has_no_name_twice_and_crds_first():
    found = [(each["kind"], each["metadata"]["name"]) for each in hub_objects()]
    kinds = [kind for kind, _ in found]

    assert len(found) == len(set(found))
    assert kinds.index("Namespace") == kinds.count("CustomResourceDefinition")
    assert kinds.count("ValidatingAdmissionPolicyBinding") == kinds.count(
        "ValidatingAdmissionPolicy"
    )


def handed(**parts: str) -> Object:
    """The Secret of an agent."""
    coded = {name: base64.b64encode(text.encode()).decode() for name, text in parts.items()}
    return {"data": {name.replace("_", "."): text for name, text in coded.items()}}


def test_access_is_what_the_agent_hands_over_while_it_is_valid():
    later, before = timestamp(NOW + timedelta(hours=1)), timestamp(NOW)
    good = access_of(cluster(), handed(server="https://s", token="t", expiration=later), NOW)

    assert good is not None
    assert (good.server, base64.b64decode(good.token)) == ("https://s", b"t")
    assert "dA==" not in repr(good)
    late = handed(server="https://s", token="t", expiration=before)
    assert access_of(cluster(), late, NOW) is None
    assert access_of(cluster(), None, NOW) is None
    assert access_of(cluster(), handed(server="http://s", token="t"), NOW) is None
    assert access_of(cluster(), {"data": {"server": "%", "token": "t"}}, NOW) is None


def test_authorities_that_are_none_are_not_published():
    found = access_of(cluster(), handed(server="https://s", token="t", ca_crt="rubbish"), NOW)

    assert found is not None
    assert found.authorities == ""


def test_a_cluster_of_another_agent_is_reached_as_its_spec_says():
    known = [{"url": "https://s:6443", "caBundle": "Y2E="}, {"url": "https://other"}]
    found = access_of(cluster(managedClusterClientConfigs=known), None, NOW)

    assert found is not None
    assert (found.server, found.authorities, found.token) == ("https://s:6443", "Y2E=", "")


def test_a_property_keeps_the_time_at_which_it_was_first_seen():
    about = decode(
        {
            "metadata": {"name": "c1"},
            "status": {"clusterClaims": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]},
        },
        type(cluster()),
    )
    old = {"name": "a", "value": "1", "lastObservedTime": "2026-01-01T00:00:00Z"}
    seen = decode({"properties": [old, {**old, "name": "b"}]}, ProfileStatus)
    found = status(Key("n", "c1"), about, access=None, observed=seen, now=NOW)

    assert [each["lastObservedTime"] for each in found["properties"]] == [
        "2026-01-01T00:00:00Z",
        timestamp(NOW),
    ]


def test_a_condition_keeps_its_time_until_its_status_changes():
    old = [StandardCondition(type="A", status="True", last_transition_time="2026-01-01T00:00:00Z")]
    other = put(old, StandardCondition(type="A", status="True", reason="New"), NOW)
    changed = put(other, StandardCondition(type="A", status="False"), NOW)

    assert (other[0].reason, other[0].last_transition_time) == ("New", "2026-01-01T00:00:00Z")
    assert changed[0].last_transition_time == timestamp(NOW)


def test_identities_are_listed_only_with_the_feature_on():
    def manager(mode: str) -> ClusterManager:
        registration = {
            "autoApproveUsers": ["a"],
            "featureGates": [{"feature": "ManagedClusterAutoApproval", "mode": mode}],
            "registrationDrivers": [
                {"authType": "csr", "csr": {"autoApprovedIdentities": ["b"]}},
                {"authType": "grpc", "grpc": {"autoApprovedIdentities": ["c"]}},
            ],
        }
        return decode({"spec": {"registrationConfiguration": registration}}, ClusterManager)

    assert manager("Enable").auto_approved == {"a", "b"}
    assert manager("Disable").auto_approved == frozenset()


def test_a_hub_lists_what_belongs_to_it_and_says_nothing_twice():
    manager = decode({"metadata": {"generation": 2, "resourceVersion": "7"}}, ClusterManager)
    deployment: Object = {
        "metadata": {"name": "cluster-manager", "namespace": "here", "generation": 3}
    }
    patch = status_patch(manager, [], deployment, related_resources())

    written = patch["status"]
    assert [each["lastGeneration"] for each in written["generations"]] == [3]
    listed = {(each["resource"], each["name"]) for each in written["relatedResources"]}
    assert ("deployments", "cluster-manager") in listed
    assert ("validatingadmissionpolicies", "knfleet-acceptance") in listed
    assert len(listed) == len(hub_objects()) + 1
    told = decode({"metadata": {"generation": 2}, "status": written}, ClusterManager)
    assert status_patch(told, [], deployment, related_resources()) == {}
    assert status_patch(told, [], None)["status"]["generations"] == []


def test_shared_roles_have_names_that_no_cluster_gives():
    """A cluster's name holds no colon, so that only the word in front can be the same."""
    assert not [name for name in SHARED_ROLES if name.startswith(role_name(""))]
