"""The least rights for spokes, as values."""

import asyncio
from importlib.resources import files
from pathlib import Path

import pytest

from knfleet.api.meta import Object
from knfleet.apply.plan.provided_roles import provides
from knfleet.apply.rights import (
    HeldRights,
    Right,
    distinct,
    granted,
    rights_in,
    rules_of,
)
from knfleet.install.access_manifests import (
    Account,
    UnusableRights,
    access_objects,
    removable,
    rights_in_manifests,
)
from knfleet.operator.spoke_access.packaged import FILE, generate, packaged_rights
from knfleet.operator.spoke_access.release_rights import (
    NAMES,
    RightsChoice,
    release_rights,
    resource,
    resource_rights,
)
from knfleet.operator.spoke_access.rights import UnknownKind, spoke_rights
from knfleet.release.errors import NotAvailable
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases


def test_the_rights_of_join_are_those_of_the_release_files(bundle_root: Path) -> None:
    """Run `make rights` when this fails."""
    kept = files("knfleet.operator.spoke_access").joinpath(FILE).read_bytes()

    assert asyncio.run(generate()) == kept


def test_join_gives_rights_to_escalate_by_name_alone_and_no_star() -> None:
    """Nor any Secret of other namespaces, nor any role of another name."""
    rights = packaged_rights()

    wide = [each for each in rights.rights if each.verb in ("bind", "escalate") and not each.name]
    assert wide == []
    assert rights.provided == {}
    assert not any("*" in (each.group, each.resource, each.verb) for each in rights.rights)
    assert not any(each.resource == "secrets" and not each.namespace for each in rights.rights)
    assert not HeldRights(rights.rights).covers(
        Right("rbac.authorization.k8s.io", "clusterroles", "create", "", "mine")
    )
    assert not HeldRights(rights.rights).covers(
        Right("rbac.authorization.k8s.io", "clusterrolebindings", "patch", "", "mine")
    )
    assert set(rights.namespace_rules) == {
        "knative-eventing",
        "knative-serving",
        "knfleet-verify-eventing",
        "knfleet-verify-serving",
    }


def test_fewer_components_need_fewer_rights(bundle_root: Path, tmp_path: Path) -> None:
    """What is not installed is not asked for."""
    releases = Releases(bundle_root, cache=ParsedCache(tmp_path))

    some = asyncio.run(release_rights(releases, RightsChoice(("1.23",), ("serving", "kourier"))))
    more = asyncio.run(release_rights(releases, RightsChoice(("1.23",), NAMES)))

    assert some.rule_count < more.rule_count
    assert all(HeldRights(more.rights).covers(each) for each in some.rights)
    assert "knative-eventing" not in some.namespaces
    assert some.provided.keys() < more.provided.keys()


def test_a_release_without_files_is_named(bundle_root: Path, tmp_path: Path) -> None:
    """With those that there are, and how to get others."""
    releases = Releases(bundle_root, cache=ParsedCache(tmp_path))

    with pytest.raises(NotAvailable, match=r"no release files of knative-.* 1\.99.*bundle pull"):
        asyncio.run(release_rights(releases, RightsChoice(("1.99",))))


def test_rights_for_a_resource_are_within_namespaces_that_it_has(
    bundle_root: Path, tmp_path: Path
) -> None:
    """Others may not be there, and the manifests could not be applied."""
    releases = Releases(bundle_root, cache=ParsedCache(tmp_path))

    kourier = asyncio.run(
        resource_rights(releases, [resource("serving", "1.23.0", ("kourier",), "home")])
    )
    istio = asyncio.run(
        resource_rights(releases, [resource("serving", "1.23.0", ("istio",), "home")])
    )

    assert set(kourier.namespace_rules) == {"home", "knfleet-verify-serving"}
    assert set(istio.namespace_rules) == {"home", "istio-system", "knfleet-verify-serving"}
    proxied = Right("", "services/proxy", "get", "istio-system", "istio-ingressgateway:80")
    assert proxied in istio.rights


def test_an_object_of_an_unknown_kind_is_named() -> None:
    """Its plural cannot be guessed."""
    odd: Object = {"apiVersion": "example.com/v1", "kind": "Odd", "metadata": {"name": "x"}}

    with pytest.raises(UnknownKind, match=r"Odd of example\.com/v1"):
        spoke_rights([odd], "home")


@pytest.mark.parametrize(
    ("rule", "right", "is_covered"),
    [
        ({"resources": ["*"], "verbs": ["get"]}, Right("a", "x", "get"), True),
        ({"resources": ["*"], "verbs": ["get"]}, Right("a", "x/status", "get"), True),
        ({"resources": ["*/scale"], "verbs": ["*"]}, Right("a", "x/scale", "patch"), True),
        ({"resources": ["*/scale"], "verbs": ["*"]}, Right("a", "x", "patch"), False),
        ({"resources": ["x"], "verbs": ["get"]}, Right("a", "*", "get"), False),
        ({"resources": ["x"], "verbs": ["get"]}, Right("b", "x", "get"), False),
        (
            {"resources": ["x"], "verbs": ["get"], "resourceNames": ["one"]},
            Right("a", "x", "get", "n", "one"),
            True,
        ),
        (
            {"resources": ["x"], "verbs": ["get"], "resourceNames": ["one"]},
            Right("a", "x", "get", "n"),
            False,
        ),
    ],
)
def test_rights_contain_others_as_an_api_server_decides_it(
    rule: Object, right: Right, is_covered: bool
) -> None:
    """Stars, parts of resources, and names."""
    held = HeldRights(rights_in({"apiGroups": ["a"], **rule}))

    assert held.covers(right) is is_covered


def test_rules_grant_exactly_the_rights_that_they_were_made_from() -> None:
    """Names stay with their verbs."""
    rights = {
        Right("", "pods", "get"),
        Right("", "pods", "list"),
        Right("", "services", "get"),
        Right("", "services", "list"),
        Right("", "secrets", "get", "", "one"),
        Right("apps", "pods", "get"),
        Right("apps", "pods", "list"),
    }

    rules = rules_of(rights)

    assert {each for rule in rules for each in rights_in(rule)} == rights
    assert len(rules) == 3


def test_a_right_that_another_contains_is_left_out() -> None:
    """By name, by namespace, by star."""
    wide = {Right("", "pods", "get"), Right("a", "*", "*")}

    narrow = {
        Right("", "pods", "get", "n"),
        Right("", "pods", "get", "", "x"),
        Right("a", "b", "c"),
    }

    assert distinct(wide | narrow | {Right("a", "b", "c")}) == wide


def test_what_is_printed_can_be_given_to_join_and_knative_survives_unjoin() -> None:
    """Namespaces of Knative, and roles that it uses, stay; those of verifications do not."""
    rights = packaged_rights()
    printed = access_objects(rights, Account("someone"))

    assert rights_in_manifests(printed) == rights
    found = {(each["kind"], each["metadata"]["name"]) for each in removable(printed, rights)}
    assert found == {
        *((kind, "knfleet:access") for kind in ("ClusterRole", "ClusterRoleBinding")),
        *((kind, "knfleet:access") for kind in ("Role", "RoleBinding")),
        *(("Namespace", f"knfleet-verify-{each}") for each in ("serving", "eventing")),
    }
    with pytest.raises(UnusableRights, match="knfleet rights"):
        rights_in_manifests([])


def test_one_role_stands_for_those_of_several_releases(bundle_root: Path, tmp_path: Path) -> None:
    """So that the hub upgrades without an administrator."""
    releases = Releases(bundle_root, cache=ParsedCache(tmp_path))
    name = "knative-eventing-controller"
    old = asyncio.run(release_rights(releases, RightsChoice(("1.22",), ("eventing",))))
    new = asyncio.run(release_rights(releases, RightsChoice(("1.23",), ("eventing",))))

    both = old.joined(new).provided[name]

    assert provides(old.provided[name]) != provides(new.provided[name])
    assert set(provides(both)) == {*provides(old.provided[name]), *provides(new.provided[name])}
    held = HeldRights(granted(both))
    for each in (old, new):
        assert all(held.covers(right) for right in granted(each.provided[name]))
