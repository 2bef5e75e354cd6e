"""Which configurations an add-on uses on a cluster."""

from typing import Any

from knfleet.api.addon.addon_configuration import ConfigReferent, ConfigType
from knfleet.api.addon.clustermanagementaddon import ClusterManagementAddOn, PlacementStrategy
from knfleet.api.addon.managedclusteraddon import ManagedClusterAddOn
from knfleet.api.meta import Object
from knfleet.api.schema import decode
from knfleet.hub.addon.resolution import (
    DEPLOYMENT_CONFIG,
    TEMPLATE,
    chosen_configs,
    missing,
    unsupported,
    wanted_references,
)
from tests.support import addons

OWN = {"group": "example.com", "resource": "things"}


def config(name: str, **type_: str) -> Object:
    """A reference to a configuration."""
    return {**(type_ or addons.DEPLOY_TYPE), "name": name, "namespace": "ocm"}


def fleet(*supported: Object) -> ClusterManagementAddOn:
    """An add-on of the fleet with a default configuration and template."""
    defaults: list[Object] = [
        {**addons.DEPLOY_TYPE, "defaultConfig": {"name": "default", "namespace": "ocm"}},
        {**addons.TEMPLATE_TYPE, "defaultConfig": {"name": "template"}},
        *supported,
    ]
    manifest = addons.cluster_addon("hello")
    manifest["spec"]["supportedConfigs"] = defaults
    return decode(manifest, ClusterManagementAddOn)


def addon(*configs: Object, **status: Any) -> ManagedClusterAddOn:
    """The add-on on a cluster."""
    manifest = {**addons.addon("hello", "c1", configs=list(configs)), "status": status}
    return decode(manifest, ManagedClusterAddOn)


def strategy(*configs: Object) -> PlacementStrategy:
    """The install strategy of a placement."""
    written: Object = {"name": "p", "namespace": "n", "configs": list(configs)}
    return decode({"metadata": {}, **written}, PlacementStrategy)


def chosen(*arguments: Any) -> list[tuple[str, str]]:
    """Names and sources of the configurations that are used."""
    return [(each.referent.name, each.source) for each in chosen_configs(*arguments)]


def test_the_add_on_of_a_cluster_wins_over_its_placement_and_that_over_the_default():
    default = ("default", "ClusterManagementAddOn default")
    template = ("template", "ClusterManagementAddOn default")
    by_placement = ("override", "install strategy of placement n/p")

    assert chosen(fleet(), addon()) == [default, template]
    assert chosen(fleet(), addon(), strategy(config("override"))) == [by_placement, template]
    assert chosen(fleet(), addon(config("own")), strategy(config("override"))) == [
        ("own", "ManagedClusterAddOn"),
        template,
    ]


def test_several_configurations_of_one_type_keep_their_order_and_repetitions_count_once():
    found = chosen(fleet(), addon(config("b"), config("a"), config("b")))

    assert [name for name, _ in found] == ["b", "a", "template"]


def test_types_that_the_add_on_does_not_understand_do_not_count():
    made = addon(config("x", **OWN))

    assert chosen(fleet(), made) == chosen(fleet(), addon())
    assert [each.name for each in unsupported(fleet(), made)] == ["x"]
    assert unsupported(fleet(OWN), made) == []
    assert unsupported(fleet(), addon(config("x", **OWN), supportedConfigs=[OWN])) == []


def hashes(type_: ConfigType, referent: ConfigReferent) -> str:
    """Every configuration of our own kinds has a hash, but one."""
    if referent.name == "gone" or type_ not in (DEPLOYMENT_CONFIG, TEMPLATE):
        return ""
    return f"hash of {referent.name}"


def test_references_keep_what_was_applied_and_hashes_of_other_managers():
    known: list[Object] = [
        {
            **addons.DEPLOY_TYPE,
            "name": "default",
            "desiredConfig": {"name": "default", "namespace": "ocm", "specHash": "old"},
            "lastAppliedConfig": {"name": "default", "namespace": "ocm", "specHash": "old"},
        },
        {
            **OWN,
            "name": "x",
            "desiredConfig": {"name": "x", "namespace": "ocm", "specHash": "theirs"},
        },
    ]
    made = addon(config("x", **OWN), configReferences=known)

    references = wanted_references(
        chosen_configs(fleet(OWN), made), hashes, made.status.config_references
    )

    found = {each.name: each for each in references}
    deploy = found["default"]
    assert deploy.desired_config is not None
    assert deploy.desired_config.spec_hash == "hash of default"
    assert deploy.last_applied_config is not None
    assert deploy.last_applied_config.spec_hash == "old"
    theirs = found["x"].desired_config
    assert theirs is not None
    assert theirs.spec_hash == "theirs"


def test_a_configuration_that_does_not_exist_is_missing():
    made = addon(config("gone"))

    references = wanted_references(chosen_configs(fleet(), made), hashes, [])

    assert [each.name for each in missing(references)] == ["gone"]
