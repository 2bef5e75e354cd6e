"""The hub has the least rights on a spoke: with exactly these everything works, with less nothing.

The rights are those that `knfleet rights` prints, for an account that has no others.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from knfleet.api.core import CLUSTER_ROLE_BINDINGS, CONFIG_MAPS, DEPLOYMENTS
from knfleet.api.knative.resources import EVENTINGS, SERVINGS
from knfleet.api.meta import Key, Object
from knfleet.apply import well_known
from knfleet.apply.rights import Right
from knfleet.dev.cluster_contents import contents
from knfleet.install.access_manifests import Account, access_objects
from knfleet.kube.client.verbs import Client, ClientOptions
from knfleet.operator.spoke_access.packaged import packaged_rights
from knfleet.operator.spoke_access.release_rights import RightsChoice, release_rights
from knfleet.operator.spoke_access.rights import SpokeRights
from knfleet.release.parsed_cache import ParsedCache
from knfleet.release.releases import Releases
from knfleet.workflows.object_lists import apply_all
from testbed.clusters import Lend
from testbed.peers.surroundings import FOREIGN, define, ensure_namespace, stand_in
from testbed.small_rights import small_rights
from testbed.waiting import until
from tests.support.fleets import FLEET, Fleet, SpokeCluster, gather, is_gone

ACCOUNT = Account("hub-access", "default")
RBAC = "rbac.authorization.k8s.io"


async def restrict(spoke: SpokeCluster, rights: SpokeRights) -> None:
    """Take all rights from the hub's account, and give it these."""
    if not await is_gone(spoke.client, CLUSTER_ROLE_BINDINGS, Key("", ACCOUNT.name)):
        await spoke.client.delete(CLUSTER_ROLE_BINDINGS, Key("", ACCOUNT.name))
    await apply_all(spoke.client, access_objects(rights, ACCOUNT))


def without(rights: SpokeRights, *lost: Right) -> SpokeRights:
    """Rights that lack some."""
    assert set(lost) <= rights.rights, set(lost) - rights.rights
    return SpokeRights(rights.rights - set(lost), rights.namespaces, rights.provided)


async def test_the_printed_rights_install_upgrade_repair_and_remove(
    fleet: Fleet,
) -> None:
    """The account may do nothing else, not even read Secrets of other namespaces."""
    rights = await small_rights("1.22", "1.23")
    await restrict(fleet.one, rights)
    fleet.one.before = set(await contents(fleet.one.client))
    await fleet.start()
    await fleet.deploy(version="1.22.0")
    await fleet.hub.ready(SERVINGS, "1.22.0")

    async with Client(fleet.one.lent.connection, ClientOptions(manager="other")) as other:
        key = Key("knative-serving", "config-network")
        await other.patch(CONFIG_MAPS, key, {"data": {"version": "theirs"}})
        await other.delete(DEPLOYMENTS, Key("knative-serving", "activator"))
    await until(lambda: is_repaired(fleet), "it is repaired")

    await fleet.hub.change(SERVINGS, version="1.23.0")
    await fleet.hub.ready(SERVINGS, "1.23.0")
    old = Key("knative-serving", "only-1-22")
    await until(lambda: is_gone(fleet.one.client, DEPLOYMENTS, old), "what is old is gone")
    await fleet.hub.delete(SERVINGS)
    await fleet.hub.gone(SERVINGS)
    await fleet.one.bare()

    assert not any("*" in str(rule) for rule in rights.cluster_rules)
    assert not any("secrets" in str(rule) for rule in rights.cluster_rules)
    assert "escalate" not in {each.verb for each in rights.rights}
    assert "forbidden" not in fleet.operator.said().lower()


async def is_repaired(fleet: Fleet) -> bool:
    """Whether everything is there again as the release has it."""
    found = await fleet.one.client.get(CONFIG_MAPS, "config-network", "knative-serving")
    there = not await is_gone(fleet.one.client, DEPLOYMENTS, Key("knative-serving", "activator"))
    return there and found["data"]["version"].startswith("1.")


LOST = {
    "create of one ClusterRoleBinding": (
        (Right(RBAC, "clusterrolebindings", "create", "", "small"),),
        "create clusterrolebindings.rbac.authorization.k8s.io",
    ),
    "the right to bind a role": (
        (Right(RBAC, "clusterroles", "bind", "", "small"),),
        "it binds ClusterRole small",
    ),
    "watch of Deployments": (
        (Right("apps", "deployments", "watch", "knative-serving"),),
        "watch deployments.apps in knative-serving",
    ),
    "delete of Services": (
        (Right("", "services", "delete", "knative-serving"),),
        "delete services in knative-serving",
    ),
    "patch of the Namespace": (
        (Right("", "namespaces", "patch", "", "knative-serving"),),
        "patch namespaces",
    ),
}


async def test_with_one_right_less_nothing_is_written_and_the_right_is_named(
    fleet: Fleet,
) -> None:
    """Also a right that is needed only later, to upgrade or remove, is missed before."""
    rights = await small_rights()
    await restrict(fleet.one, rights)
    await fleet.start()
    for what, (lost, words) in LOST.items():
        await restrict(fleet.one, without(rights, *lost))
        await fleet.deploy(version="1.22.0")
        await until(lambda text=words: is_told(fleet, text), f"{what} is missed")
        members = await fleet.one.client.list(DEPLOYMENTS, labels=well_known.PART_OF)
        assert members.items == [], what
        await fleet.hub.delete(SERVINGS)
        await fleet.hub.gone(SERVINGS)

    await restrict(fleet.one, rights)
    await fleet.deploy(version="1.22.0")
    await fleet.hub.ready(SERVINGS, "1.22.0")


async def is_told(fleet: Fleet, words: str) -> bool:
    """Whether the custom resource names a right that is missing, and what to do."""
    said = await fleet.hub.condition(SERVINGS, "InstallSucceeded")
    message = said.get("message", "")
    return said["status"] == "False" and words in message and "knfleet rights" in message


@pytest.mark.full
async def test_a_release_with_other_roles_waits_for_an_administrator(
    fleet: Fleet,
) -> None:
    """The account cannot write ClusterRoles; one who can applies those of the new release."""
    rights = await small_rights("1.22")
    held = {(each.resource, each.verb) for each in rights.rights}
    assert ("clusterroles", "create") not in held
    await restrict(fleet.one, rights)
    await fleet.start()
    await fleet.deploy(version="1.22.0")
    await fleet.hub.ready(SERVINGS, "1.22.0")

    await fleet.hub.change(SERVINGS, version="1.23.0")

    await until(lambda: is_told(fleet, "patch clusterroles.rbac"), "the new role is missed")
    await restrict(fleet.one, await small_rights("1.22", "1.23"))
    await fleet.hub.ready(SERVINGS, "1.23.0")


@pytest.fixture
async def real_fleet(lend: Lend, bundle_root: Path, tmp_path: Path) -> AsyncIterator[Fleet]:
    """A hub and a spoke, with the real releases."""
    async with gather(await lend(2, definitions=True), tmp_path, bundle_root) as fleet:
        await define(fleet.one.client, [stand_in(*kind) for kind in FOREIGN])
        await ensure_namespace(fleet.one.client, "istio-system")
        yield fleet


@pytest.mark.full
@pytest.mark.parametrize("source", ["printed", "packaged"])
async def test_every_component_of_the_real_releases_needs_no_more_than_is_given(
    real_fleet: Fleet, bundle_root: Path, tmp_path: Path, source: str
) -> None:
    """All ingresses and event sources are installed, upgraded and removed.

    With the rights that `knfleet rights` prints, and with those that `knfleet join` gives.
    """
    fleet = real_fleet
    releases = Releases(bundle_root, cache=ParsedCache(tmp_path / "cache"))
    printed = await release_rights(releases, RightsChoice(("1.22", "1.23")))
    await restrict(fleet.one, printed if source == "printed" else packaged_rights())
    fleet.one.before = set(await contents(fleet.one.client))
    await fleet.start()
    on = {"enabled": True}
    target: Object = {"clusterProfileRef": {"name": "spoke1", "namespace": FLEET}}
    ingress = dict.fromkeys(("contour", "gateway-api", "istio", "kourier"), on)
    sources = ("ceph", "github", "gitlab", "kafka", "rabbitmq", "redis")
    await fleet.hub.create(
        SERVINGS, version="1.22", ingress=ingress, security={"securityGuard": on}, **target
    )
    encrypted = {"features": {"transport-encryption": "permissive"}}
    await fleet.hub.create(
        EVENTINGS, version="1.22", source=dict.fromkeys(sources, on), config=encrypted, **target
    )
    await fleet.hub.ready(SERVINGS, "1.22.1")
    await fleet.hub.ready(EVENTINGS, "1.22.2")

    for kind in (SERVINGS, EVENTINGS):
        await fleet.hub.change(kind, version="1.23")
    for kind in (SERVINGS, EVENTINGS):
        await fleet.hub.ready(kind, "1.23.0")
    for kind in (SERVINGS, EVENTINGS):
        await fleet.hub.delete(kind)
    for kind in (SERVINGS, EVENTINGS):
        await fleet.hub.gone(kind)

    await fleet.one.bare()
    assert "forbidden" not in fleet.operator.said().lower()
