"""What is decided about spokes: roots, uids, tombstones, words, interruptions."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from knfleet.api.meta import Key, Object
from knfleet.clusters.anchor import anchor_of, is_intact
from knfleet.clusters.connection_state import ClusterState, Phase
from knfleet.kube import yaml
from knfleet.operator.installation_record import InstallationRecord, PassInterrupted
from knfleet.operator.kinds import TARGET_UID, was_installed
from knfleet.operator.resource_metrics import ResourceMetrics
from knfleet.operator.settings import SettingError, poll_seconds
from knfleet.operator.targets.spoke_targets import UNKNOWN, check_uid, root_of
from knfleet.operator.targets.targets import TargetError
from knfleet.operator.uninstall.lost_target import ON_LOST_TARGET
from knfleet.operator.uninstall.orphan_cleanup import is_same_target
from knfleet.operator.uninstall.tombstones import manifest_of, read
from knfleet.operator.uninstall.uninstall import tombstone_of, waiting_text
from testbed.waiting import PATIENCE_SECONDS, until
from tests.unit.operator.samples import serving

PROFILE = Key("fleet", "spoke1")
ROOT = Path(__file__).parents[3]


def remote(**annotations: str) -> Object:
    """A KnativeServing for a spoke."""
    found = serving("ks", annotations=annotations, deletionTimestamp="2026-01-01T00:00:00Z")
    found["spec"] = {"clusterProfileRef": {"namespace": "fleet", "name": "spoke1"}}
    return found


def test_both_spellings_of_namespace_settings_count_and_the_newer_wins() -> None:
    """As for the Namespace that is rendered."""
    manifest = remote()
    manifest["spec"]["namespaceConfiguration"] = {"labels": {"a": "1", "b": "1"}}
    manifest["spec"]["namespace"] = {"labels": {"b": "2"}, "annotations": {"c": "3"}}

    root = root_of(manifest, "hub")

    assert dict(root.labels) == {"a": "1", "b": "2"}
    assert dict(root.annotations) == {"c": "3"}


def test_another_cluster_is_refused_with_both_uids() -> None:
    """One that cannot be told is taken for the same only where it never could be."""
    check_uid(remote(), PROFILE, "one")
    check_uid(remote(), PROFILE, "")
    check_uid(remote(**{TARGET_UID: "one"}), PROFILE, "one")
    check_uid(remote(**{TARGET_UID: UNKNOWN}), PROFILE, "")
    check_uid(remote(**{TARGET_UID: UNKNOWN}), PROFILE, "one")

    with pytest.raises(TargetError, match=r"uid two, not one.*remove the annotation") as refused:
        check_uid(remote(**{TARGET_UID: "one"}), PROFILE, "two")
    assert refused.value.reason == "RemoteClientCreationFailed"


def test_a_cluster_that_cannot_be_told_any_more_is_refused() -> None:
    """Another one could answer there, with credentials that may not read its kube-system."""
    with pytest.raises(TargetError, match=r"may not read namespace kube-system.*has the uid one"):
        check_uid(remote(**{TARGET_UID: "one"}), PROFILE, "")


def test_a_custom_resource_was_installed_when_anything_says_so() -> None:
    """The Knative Operator notes no uid, but records what it installed."""
    recorded = remote() | {"status": {"manifests": ["/somewhere"]}}

    assert not was_installed(remote())
    assert was_installed(remote(**{TARGET_UID: "one"}))
    assert was_installed(recorded)


def test_a_tombstone_is_read_as_it_was_written() -> None:
    """And one that makes no sense is none."""
    stone = tombstone_of(remote(**{TARGET_UID: "one"}), "2026-01-02T00:00:00Z")

    manifest = manifest_of(stone, "knative-operator")

    assert read(manifest) == stone
    assert stone.profile_key == PROFILE
    assert manifest["data"]["anchor"] == "knative/knativeserving-ks-root-owner"
    assert read({"data": {"kind": "KnativeServing"}}) is None


def test_a_place_is_the_same_by_its_profile_or_its_cluster() -> None:
    """A profile may have been renamed."""
    stone = tombstone_of(remote(**{TARGET_UID: "one"}), "")
    renamed = remote(**{TARGET_UID: "one"})
    renamed["spec"]["clusterProfileRef"]["name"] = "renamed"
    elsewhere = remote(**{TARGET_UID: "two"})
    elsewhere["spec"]["clusterProfileRef"]["name"] = "elsewhere"

    assert is_same_target(remote(), stone)
    assert is_same_target(renamed, stone)
    assert not is_same_target(elsewhere, stone)


def test_a_removal_that_waits_says_since_when_and_what_to_do() -> None:
    """With the command, and what is wrong with an annotation."""
    lost = TargetError("RemoteClientCreationFailed", "no answer.")
    gone = TargetError("ClusterProfileNotFound", "not found")

    assert waiting_text(remote(), lost) == (
        "no answer; the removal waits since 2026-01-01T00:00:00Z and continues automatically:"
        " bring the cluster back; if the cluster no longer exists, run: kubectl annotate"
        " knativeserving -n knative ks knfleet.dev/on-lost-target=orphan --overwrite"
    )
    assert "create the ClusterProfile fleet/spoke1 again" in waiting_text(remote(), gone)
    wrong = remote(**{ON_LOST_TARGET: "no"})
    assert waiting_text(wrong, lost).endswith("'no'; it must be wait, defer, orphan or force")


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("1s", 1), ("500ms", 10), ("0s", 10)])
def test_a_period_that_is_too_short_counts_as_none(text: str, seconds: float) -> None:
    """As upstream."""
    assert poll_seconds(text) == seconds


def test_a_period_that_is_none_is_refused() -> None:
    """With an example."""
    with pytest.raises(SettingError, match="such as 60s"):
        poll_seconds("soon")


async def test_a_pass_can_be_cut_off_and_the_next_one_is_not() -> None:
    """What a lost spoke is asked may never be answered."""
    record = InstallationRecord(remote())
    record.interrupt()

    async def waits() -> None:
        async with record.limited():
            await asyncio.Event().wait()

    async with asyncio.timeout(PATIENCE_SECONDS):
        task = asyncio.ensure_future(waits())
        await until(lambda: record.limit is not None, "it waits")
        record.interrupt()
        record.interrupt()
        with pytest.raises(PassInterrupted):
            await task
        async with record.limited():
            await asyncio.sleep(0)


def test_only_a_new_trigger_is_a_trigger() -> None:
    """The one that was there at the start asked an earlier process."""
    record = InstallationRecord(remote(**{"reconcile.knative.dev/trigger": "1"}))

    assert not record.is_triggered(remote(**{"reconcile.knative.dev/trigger": "1"}))
    assert record.is_triggered(remote(**{"reconcile.knative.dev/trigger": "2"}))
    assert not record.is_triggered(remote(**{"reconcile.knative.dev/trigger": "2"}))


def test_an_anchor_that_is_being_deleted_is_not_intact() -> None:
    """It will not be there in a moment."""
    root = root_of(remote(), "hub")
    anchor = anchor_of(root)
    going = {**anchor, "metadata": {**anchor["metadata"], "deletionTimestamp": "now"}}

    assert is_intact(root, anchor)
    assert not is_intact(root, going)


def test_alerts_are_about_metrics_that_there_are() -> None:
    """A renamed metric would make an alert that never fires."""
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    state = ClusterState(profile=PROFILE, phase=Phase.UP, since=moment, last_contact=moment)
    manifest = remote() | {
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ]
        }
    }
    gauges = ResourceMetrics(lambda: [manifest], lambda: [state], lambda: now)
    gauges.snapshot()

    families = {each.name: each for each in gauges.collect()}
    text = (ROOT / "docs" / "alerts" / "knfleet-rules.yaml").read_text()
    (rules,) = yaml.load(text.encode())["groups"]

    assert {each.samples[0].value for each in families.values()} == {1.0, 60.0, 0.0}
    for rule in rules["rules"]:
        assert set(re.findall(r"knfleet_\w+", rule["expr"])) <= families.keys()
        assert "summary" in rule["annotations"]
