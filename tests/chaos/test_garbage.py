"""Which pods only the garbage collector can delete."""

from knfleet.api.meta import Object
from tests.chaos.garbage import orphans


def pod(name: str, *owners: str) -> Object:
    """A pod with owners, by uid."""
    references = [{"kind": "StatefulSet", "name": "store", "uid": uid} for uid in owners]
    return {"metadata": {"namespace": "a", "name": name, "ownerReferences": references}}


def test_a_pod_whose_owner_is_gone_is_left() -> None:
    pods = [pod("store-0", "old"), pod("store-1", "new"), pod("alone"), pod("both", "old", "new")]

    assert orphans(pods, {"new"}) == ["pod a/store-0"]
