"""Which changes of a custom resource are worth a pass."""

import copy

import msgspec

from knfleet.api.knative.resources import SERVINGS, KnativeStatus
from knfleet.api.meta import Key, Object
from knfleet.operator.controller import cause
from knfleet.operator.installation_record import InstallationRecord
from knfleet.operator.targets.targets import LONGEST_NAME, inventory_key
from tests.unit.operator.samples import serving


def test_only_what_people_change_is_a_cause() -> None:
    """Neither status nor finalizers nor labels nor managed fields."""
    before = serving()
    after = serving(resourceVersion="2", labels={"a": "b"}, finalizers=["ours"], managedFields=[])
    after["status"] = {"version": "1.23.0"}

    assert cause(before) == cause(after)
    assert cause(before) != cause(serving(generation=2))
    assert cause(before) != cause(serving(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert cause(before) != cause(serving(annotations={"a": "b"}))
    assert cause(before) != cause(serving(uid="another"))


def with_status(status: KnativeStatus) -> Object:
    """A custom resource with a status."""
    manifest = copy.deepcopy(serving())
    manifest["status"] = msgspec.to_builtins(status)
    return manifest


def test_our_own_words_are_known_again() -> None:
    """Also those before the last: a watch is a little behind."""
    record = InstallationRecord(serving())
    first, second = KnativeStatus(version="1.22.0"), KnativeStatus(version="1.23.0")
    record.reported += [first, second]

    assert record.status == second
    assert record.has_reported(first)
    assert not record.has_reported(KnativeStatus(version="9.9.9"))


def test_failures_are_retried_later_each_time_up_to_a_limit() -> None:
    """Causes often go without anybody telling."""
    record = InstallationRecord(serving())

    waits = [record.retry_seconds() for _ in range(40)]

    assert waits[:4] == [1, 2, 4, 8]
    assert max(waits) == 15


def test_inventories_have_names_that_fit() -> None:
    """Custom resources with the longest names are told apart."""
    one, other = serving("a" * 252 + "b"), serving("a" * 252 + "c")

    assert inventory_key(serving("one")) == Key("knative", "knativeserving-one-inventory")
    assert len(inventory_key(one).name) == LONGEST_NAME
    assert inventory_key(one) != inventory_key(other)
    assert SERVINGS.kind == one["kind"]
