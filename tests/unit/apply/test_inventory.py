"""The parent of a set: its id, its list, and that nothing falls out of it."""

import base64
import hashlib

from hypothesis import given
from hypothesis import strategies as st

from knfleet.api.core import CONFIG_MAPS
from knfleet.api.meta import Key
from knfleet.apply import well_known
from knfleet.apply.applyset import ApplySet, Inventory, read_parent, write_parent
from knfleet.apply.refs import GroupKind, Ref
from tests.support.objects import SET

refs = st.builds(
    Ref,
    st.sampled_from(["", "apps", "example.com"]),
    st.sampled_from(["ConfigMap", "Deployment", "Thing"]),
    st.sampled_from(["", "home", "away"]),
    st.just("x"),
)


def test_the_id_is_the_one_that_kubectl_gives() -> None:
    """Taken from `kubectl apply --applyset=configmaps/parent` on a real cluster."""
    applyset = ApplySet(CONFIG_MAPS, Key("default", "parent"))

    assert applyset.id == "applyset-gER-88e-bGQpd1W1MaqV-KU1XYLjw_VtpQarrfsBrFI-v1"
    assert len(applyset.id) <= 63
    digest = hashlib.sha256(b"parent.default.ConfigMap.").digest()
    assert base64.urlsafe_b64encode(digest).decode().rstrip("=") in applyset.id


@given(st.frozensets(refs), st.frozensets(st.sampled_from(["agg-a", "agg-b"])))
def test_what_is_written_is_read_back(members: frozenset[Ref], roles: frozenset[str]) -> None:
    """Otherwise prune would look in the wrong places."""
    jobs = {"home/job": "abc", "away/job": "def"}
    wanted = Inventory(second_look=roles, done_jobs=jobs).widened(members)

    read = read_parent(SET, write_parent(SET, wanted, ""))

    assert read.is_marked
    assert read.inventory.kinds == wanted.kinds
    assert read.inventory.namespaces == wanted.namespaces | {"home"}
    assert (read.inventory.second_look, read.inventory.done_jobs) == (roles, jobs)


@given(st.lists(refs), st.lists(refs))
def test_widening_keeps_what_was_there_and_takes_in_what_comes(
    before: list[Ref], after: list[Ref]
) -> None:
    """At any moment the parent covers old members and new ones."""
    inventory = Inventory().widened(before).widened(after)

    assert inventory.covers(before)
    assert inventory.covers(after)


def test_the_parent_s_namespace_is_not_an_additional_one() -> None:
    """KEP-3659 says so; and lists are sorted, with the kind before the group."""
    inventory = Inventory(
        frozenset({GroupKind("apps", "Deployment"), GroupKind("", "ConfigMap")}),
        frozenset({"home", "b", "a"}),
    )

    annotations = write_parent(SET, inventory, "7")["metadata"]["annotations"]

    assert annotations[well_known.ADDITIONAL_NAMESPACES] == "a,b"
    assert annotations[well_known.CONTAINS] == "ConfigMap,Deployment.apps"
    assert annotations[well_known.TOOLING].startswith("knfleet/v")


def test_a_parent_of_another_tool_is_seen() -> None:
    """Its set is not ours to change."""
    manifest = write_parent(SET, Inventory(), "1")
    manifest["metadata"]["annotations"][well_known.TOOLING] = "kubectl/v1.35.8"

    assert read_parent(SET, manifest).is_foreign
