"""The fleet's CRDs on a real API server: what it takes, and what it refuses with which words."""

from typing import Any, cast

import msgspec
import pytest

from knfleet.api.cluster.clusterset import BINDINGS, CLUSTER_SETS
from knfleet.api.cluster.managedcluster import CLUSTERS
from knfleet.api.conditions import StandardCondition
from knfleet.api.meta import Key, Object, Resource
from knfleet.api.operator import CLUSTER_MANAGERS, KLUSTERLETS
from knfleet.api.work.manifestwork import WORKS
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Invalid


def thing(resource: Resource, name: str, **parts: Any) -> Object:
    """An object of a kind."""
    meta = {"name": name}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **parts}


MOMENT = "2026-11-15T12:00:00Z"
CERTIFICATE = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="
CLIENT_CONFIGS = [{"url": "https://spoke:6443", "caBundle": CERTIFICATE}]
TAINTS = [{"key": "gpu.example.com/only", "value": "yes", "effect": "NoSelect", "timeAdded": None}]

CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a"},
    "data": {"a": "b"},
}
IDENTIFIER = {"group": "", "resource": "configmaps", "namespace": "default", "name": "a"}

ACCEPTED: list[tuple[Resource, str, Object]] = [
    (CLUSTERS, "c" * 63, {}),
    (
        CLUSTERS,
        "local-cluster",
        {"hubAcceptsClient": False, "managedClusterClientConfigs": CLIENT_CONFIGS},
    ),
    (CLUSTERS, "tainted", {"leaseDurationSeconds": 4, "taints": TAINTS}),
    (CLUSTER_SETS, "default", {"clusterSelector": {"selectorType": "ExclusiveClusterSetLabel"}}),
    (
        CLUSTER_SETS,
        "global",
        {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}},
    ),
    (BINDINGS, "default", {"clusterSet": "default"}),
    (WORKS, "web", {"workload": {"manifests": [{**CONFIG_MAP, "kind": "Pod", "spec": {}}]}}),
    (
        WORKS,
        "configured",
        {
            "workload": {"manifests": [CONFIG_MAP]},
            "deleteOption": {
                "propagationPolicy": "SelectivelyOrphan",
                "selectivelyOrphans": {"orphaningRules": [IDENTIFIER]},
                "ttlSecondsAfterFinished": 60,
            },
            "manifestConfigs": [
                {
                    "resourceIdentifier": IDENTIFIER,
                    "feedbackRules": [
                        {"type": "WellKnownStatus"},
                        {"type": "JSONPaths", "jsonPaths": [{"name": "a", "path": ".a"}]},
                    ],
                    "updateStrategy": {
                        "type": "ServerSideApply",
                        "serverSideApply": {
                            "force": True,
                            "fieldManager": "work-agent-a",
                            "ignoreFields": [
                                {"condition": "OnSpokePresent", "jsonPaths": [".data.a"]},
                                {
                                    "condition": "OnSpokeChange",
                                    "jsonPointers": ["/data/a"],
                                    "jqPathExpressions": [".data.a"],
                                },
                            ],
                        },
                    },
                    "conditionRules": [
                        {"condition": "Complete", "type": "WellKnownConditions"},
                        {
                            "condition": "Filled",
                            "type": "CEL",
                            "celExpressions": ["has(object.data)"],
                            "message": "filled",
                            "messageExpression": "result ? 'filled' : 'empty'",
                        },
                    ],
                    "feedbackScrapeType": "Watch",
                }
            ],
            "executor": {
                "subject": {
                    "type": "ServiceAccount",
                    "serviceAccount": {"namespace": "default", "name": "applier"},
                }
            },
        },
    ),
    (
        CLUSTER_MANAGERS,
        "cluster-manager",
        {
            "registrationConfiguration": {
                "featureGates": [{"feature": "ManagedClusterAutoApproval", "mode": "Enable"}],
                "registrationDrivers": [
                    {"authType": "csr", "csr": {"autoApprovedIdentities": ["somebody"]}},
                    {"authType": "grpc", "grpc": {"autoApprovedIdentities": ["somebody"]}},
                ],
            },
            "deployOption": {"mode": "Default"},
            "resourceRequirement": {
                "type": "ResourceRequirement",
                "resourceRequirements": {"limits": {"cpu": 1}, "requests": {"memory": "64Mi"}},
            },
        },
    ),
    (
        KLUSTERLETS,
        "klusterlet",
        {
            "clusterName": "c1",
            "namespace": "open-cluster-management-agent",
            "externalServerURLs": CLIENT_CONFIGS,
            "registrationConfiguration": {"clientCertExpirationSeconds": 3600},
        },
    ),
]


@pytest.mark.parametrize(("resource", "name", "spec"), ACCEPTED, ids=lambda each: str(each)[:20])
async def test_what_open_cluster_management_writes_is_taken(
    fleet: Client, resource: Resource, name: str, spec: Object
):
    namespace = "default" if resource.namespaced else ""

    made = await fleet.create(resource, thing(resource, name, spec=spec), namespace)

    assert covers(made["spec"], spec)
    await fleet.delete(resource, Key(namespace, name))


async def test_a_condition_with_an_endless_message_is_written(fleet: Client):
    """Cut where the API server would refuse the whole status."""
    await fleet.create(CLUSTERS, thing(CLUSTERS, "wordy", spec={}))
    said = StandardCondition(
        type="A", status="False", reason="B", message="é" * 40_000, last_transition_time=MOMENT
    )
    status = {"conditions": [msgspec.to_builtins(said)]}

    written = await fleet.patch(
        CLUSTERS, Key("", "wordy"), {"status": status}, subresource="status"
    )

    assert written["status"]["conditions"][0]["message"].endswith("é…")
    await fleet.delete(CLUSTERS, Key("", "wordy"))


def covers(made: Any, wanted: Any) -> bool:
    """Whether all that was wanted is there, nulls aside."""
    if isinstance(wanted, dict):
        fields = cast("Object", wanted)
        return all(covers(made.get(name), part) for name, part in fields.items())
    if isinstance(wanted, list):
        parts = cast("list[Any]", wanted)
        return all(covers(left, right) for left, right in zip(made, parts, strict=True))
    return made == wanted


def configured(**parts: Any) -> Object:
    """A work's spec with one config."""
    return {
        "workload": {"manifests": [CONFIG_MAP]},
        "manifestConfigs": [{"resourceIdentifier": IDENTIFIER, **parts}],
    }


REFUSED: list[tuple[Resource, str, Object, str]] = [
    (WORKS, "nameless", {"workload": {"manifests": [{"apiVersion": "v1"}]}}, "kind: Required"),
    (WORKS, "odd", configured(updateStrategy={"type": "Replace"}), "ServerSideApply"),
    (
        WORKS,
        "foreign",
        configured(
            updateStrategy={"type": "ServerSideApply", "serverSideApply": {"fieldManager": "me"}}
        ),
        "\\^work-agent",
    ),
    (
        WORKS,
        "unnamed",
        configured(conditionRules=[{"condition": "", "type": "CEL"}]),
        "Condition is required for CEL rules",
    ),
    (
        WORKS,
        "executor",
        {
            "workload": {"manifests": [CONFIG_MAP]},
            "executor": {
                "subject": {
                    "type": "ServiceAccount",
                    "serviceAccount": {"namespace": "default", "name": "Not_a_name"},
                }
            },
        },
        "serviceAccount.name",
    ),
    (CLUSTERS, "c" * 64, {}, "metadata.name: .*at most 63 of a-z, 0-9 and -"),
    (CLUSTERS, "c.d", {}, "metadata.name: .*at most 63 of a-z, 0-9 and -"),
    (CLUSTERS, "kube-system", {}, "metadata.name: .*choose another"),
    (CLUSTERS, "open-cluster-management-hub", {}, "metadata.name: .*choose another"),
    (
        CLUSTERS,
        "plain",
        {"managedClusterClientConfigs": [{"url": "http://spoke"}]},
        "must begin with https://",
    ),
    (CLUSTERS, "odd", {"taints": [{"key": "a", "effect": "NoExecute"}]}, "NoSelect"),
    (BINDINGS, "mine", {"clusterSet": "default"}, "spec.clusterSet: .*named like the set"),
    (
        CLUSTER_MANAGERS,
        "cluster-manager",
        {
            "resourceRequirement": {
                "type": "ResourceRequirement",
                "resourceRequirements": {"limits": {"cpu": "many"}},
            }
        },
        r"limits\.cpu: ",
    ),
    (
        KLUSTERLETS,
        "klusterlet",
        {"nodePlacement": {"tolerations": [{"tolerationSeconds": "long"}]}},
        r"tolerationSeconds: ",
    ),
    (KLUSTERLETS, "klusterlet", {"namespace": "kube-system"}, "open-cluster-management-"),
]


@pytest.mark.parametrize(("resource", "name", "spec", "words"), REFUSED)
async def test_what_makes_no_sense_is_refused_with_the_remedy(
    fleet: Client, resource: Resource, name: str, spec: Object, words: str
):
    namespace = "default" if resource.namespaced else ""

    with pytest.raises(Invalid, match=words):
        await fleet.create(resource, thing(resource, name, spec=spec), namespace)
