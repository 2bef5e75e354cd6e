"""The add-on CRDs on a real API server: what it accepts, defaults and refuses."""

from typing import Any

import pytest

from knfleet.api.addon.addondeploymentconfig import CONFIGS, CONFIGS_BETA
from knfleet.api.addon.addontemplate import ADDON_TEMPLATES, ADDON_TEMPLATES_BETA
from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS, ADDONS_BETA
from knfleet.api.addon.names import DEFAULT_NAMESPACE, GROUP
from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key, Object, Resource
from knfleet.apply.applyset import ApplySet
from knfleet.apply.change_set import Action
from knfleet.apply.engine import Engine
from knfleet.kube.client.verbs import Client
from knfleet.kube.errors import Invalid, ServerError

DEPLOY = {"group": GROUP, "resource": "addondeploymentconfigs"}
TEMPLATE = {"group": GROUP, "resource": "addontemplates"}
PLACEMENT = {"name": "placement-aws", "namespace": "default"}


def thing(resource: Resource, name: str, spec: Object) -> Object:
    """An object of a kind."""
    meta = {"name": name}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": meta,
        "spec": spec,
    }


async def made(client: Client, resource: Resource, name: str, spec: Object) -> Object:
    """An object as the server stores it; it is gone afterwards."""
    namespace = "default" if resource.namespaced else ""
    found = await client.create(resource, thing(resource, name, spec), namespace)
    await client.delete(resource, Key(namespace, name))
    return found["spec"]


async def test_an_add_on_is_installed_by_hand_unless_a_strategy_says_otherwise(fleet: Client):
    assert await made(fleet, CLUSTER_ADDONS, "hello", {"addOnMeta": {"displayName": "h"}}) == {
        "addOnMeta": {"displayName": "h"},
        "installStrategy": {"type": "Manual"},
    }


async def test_a_rollout_strategy_gets_the_defaults_of_open_cluster_management(fleet: Client):
    progressive: Object = {
        "mandatoryDecisionGroups": [{"groupName": "prod-canary-west"}],
        "maxConcurrency": "25%",
        "minSuccessTime": "5m",
        "progressDeadline": "10m",
        "maxFailures": 2,
    }
    spec: Object = {
        "installStrategy": {
            "type": "Placements",
            "placements": [
                {**PLACEMENT, "configs": [{**DEPLOY, "name": "deploy-config", "namespace": "ocm"}]},
                {
                    **PLACEMENT,
                    "name": "other",
                    "rolloutStrategy": {"type": "Progressive", "progressive": progressive},
                },
                {**PLACEMENT, "name": "third", "rolloutStrategy": {"type": "All", "all": {}}},
            ],
        }
    }

    strategies = (await made(fleet, CLUSTER_ADDONS, "hello", spec))["installStrategy"]["placements"]

    assert [each["rolloutStrategy"] for each in strategies] == [
        {"type": "All"},
        {"type": "Progressive", "progressive": progressive},
        {
            "type": "All",
            "all": {"maxFailures": 0, "minSuccessTime": "0", "progressDeadline": "None"},
        },
    ]


async def test_the_install_namespace_has_a_default(fleet: Client):
    assert await made(fleet, ADDONS, "hello", {}) == {"installNamespace": DEFAULT_NAMESPACE}


@pytest.mark.parametrize("resource", [CONFIGS, CONFIGS_BETA], ids=lambda each: each.version)
async def test_an_empty_install_namespace_is_not_the_default(fleet: Client, resource: Resource):
    config: Object = {
        "customizedVariables": [{"name": "IMAGE", "value": "quay.io/x:v1"}],
        "nodePlacement": {"tolerations": [{"key": "k", "operator": "Exists"}]},
        "registries": [{"source": "quay.io/a", "mirror": "mirror/a"}],
        "proxyConfig": {"httpProxy": "http://p", "caBundle": "YQ=="},
        "resourceRequirements": [
            {"containerID": "deployments:a:*", "resources": {"limits": {"cpu": 1, "memory": "8Mi"}}}
        ],
    }

    assert await made(fleet, resource, "a", {**config, "agentInstallNamespace": ""}) == {
        **config,
        "agentInstallNamespace": "",
    }
    assert await made(fleet, resource, "b", config) == {
        **config,
        "agentInstallNamespace": DEFAULT_NAMESPACE,
    }


@pytest.mark.parametrize(
    "resource", [ADDON_TEMPLATES, ADDON_TEMPLATES_BETA], ids=lambda each: each.version
)
async def test_a_template_keeps_its_manifests_and_registrations(fleet: Client, resource: Resource):
    spec: Object = {
        "addonName": "hello",
        "agentSpec": {
            "workload": {
                "manifests": [
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {"name": "{{CLUSTER_NAME}}-a"},
                        "data": {"free": "form"},
                    }
                ]
            }
        },
        "registration": [
            {
                "type": "KubeClient",
                "kubeClient": {
                    "hubPermissions": [
                        {"type": "CurrentCluster", "currentCluster": {"clusterRoleName": "view"}},
                        {
                            "type": "SingleNamespace",
                            "singleNamespace": {
                                "namespace": "default",
                                "roleRef": {
                                    "apiGroup": "rbac.authorization.k8s.io",
                                    "kind": "Role",
                                    "name": "r",
                                },
                            },
                        },
                    ]
                },
            },
            {
                "type": "CustomSigner",
                "customSigner": {
                    "signerName": "example.com/signer",
                    "signingCA": {"name": "ca", "namespace": "default"},
                    "subject": {"user": "u", "groups": ["g"], "organizationUnit": ["o"]},
                },
            },
        ],
    }

    assert await made(fleet, resource, "hello", spec) == spec


REFUSED: list[tuple[Resource, Object, str]] = [
    (CLUSTER_ADDONS, {"installStrategy": {"type": "Automatic"}}, "Unsupported value"),
    (
        CLUSTER_ADDONS,
        {"supportedConfigs": [DEPLOY, {**DEPLOY, "defaultConfig": {"name": "a"}}]},
        "Duplicate value",
    ),
    (
        CLUSTER_ADDONS,
        {"installStrategy": {"type": "Placements", "placements": [PLACEMENT, PLACEMENT]}},
        "Duplicate value",
    ),
    (
        CLUSTER_ADDONS,
        {
            "installStrategy": {
                "placements": [
                    {
                        **PLACEMENT,
                        "rolloutStrategy": {
                            "type": "Progressive",
                            "progressive": {"maxConcurrency": "120%"},
                        },
                    }
                ]
            }
        },
        "maxConcurrency",
    ),
    (ADDONS, {"installNamespace": "Not_A_Namespace"}, "installNamespace"),
    (ADDONS, {"configs": [{**DEPLOY, "name": ""}]}, "name"),
    (CONFIGS, {"customizedVariables": [{"name": "1st"}]}, "customizedVariables"),
    (
        CONFIGS,
        {"resourceRequirements": [{"containerID": "nodes:a:b", "resources": {}}]},
        "containerID",
    ),
    (ADDON_TEMPLATES, {"addonName": "a"}, "agentSpec"),
]


@pytest.mark.parametrize(("resource", "spec", "words"), REFUSED, ids=lambda each: str(each)[:20])
async def test_what_makes_no_sense_is_refused_by_name(
    fleet: Client, resource: Resource, spec: Any, words: str
):
    with pytest.raises(Invalid, match=words):
        await made(fleet, resource, "odd", spec)


async def test_without_the_webhook_the_stored_version_works_and_the_other_says_why_not(
    fleet: Client,
):
    await fleet.create(ADDONS, thing(ADDONS, "kept", {}), "default")

    with pytest.raises(ServerError, match=r"conversion webhook for .*ManagedClusterAddOn failed"):
        await fleet.get(ADDONS_BETA, "kept", "default")

    found = await fleet.get(ADDONS, "kept", "default")
    assert found["spec"] == {"installNamespace": DEFAULT_NAMESPACE}

    # What looks at objects of all kinds, each in the version that the server prefers, goes on.
    assert await fleet.discovery.other_versions(ADDONS_BETA) == [ADDONS]
    member = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    own = ApplySet(CONFIG_MAPS, Key("default", "applied-beside-add-ons"))
    engine = Engine(fleet, own)
    await engine.apply([{**member, "metadata": {"name": "m", "namespace": "default"}}])
    await fleet.delete(CONFIG_MAPS, own.key)
    changes = await Engine(fleet, own).uninstall()
    assert [ref.name for ref in changes.by(Action.DELETED)] == ["m"]
    await fleet.delete(ADDONS, Key("default", "kept"))
