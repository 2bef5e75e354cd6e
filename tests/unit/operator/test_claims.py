"""Which of several custom resources may install."""

from knfleet.api.meta import Object
from knfleet.operator.targets.target_claims import holder
from tests.unit.operator.samples import serving

FINALIZER = "knativeservings.operator.knative.dev"


def first(*manifests: Object, claimed: frozenset[str] = frozenset()) -> set[str]:
    """Who is first, asked for each of them."""
    return {
        holder(each, manifests, finalizer=FINALIZER, claimed=claimed)["metadata"]["name"]
        for each in manifests
    }


def test_the_oldest_is_first_whoever_asks() -> None:
    """Everybody gets the same answer."""
    older = serving("z", creationTimestamp="2026-01-01T00:00:00Z")
    younger = serving("a", creationTimestamp="2026-01-01T00:00:01Z")

    assert first(older, younger) == {"z"}


def test_of_two_of_one_second_the_first_by_name() -> None:
    """Creation times have whole seconds only."""
    assert first(serving("b"), serving("a")) == {"a"}


def test_who_has_begun_stays_first() -> None:
    """The finalizer is put on before anything is installed, so it tells who has begun."""
    begun = serving("b", finalizers=[FINALIZER], creationTimestamp="2026-01-02T00:00:00Z")

    assert first(begun, serving("a")) == {"b"}


def test_a_claim_counts_before_its_finalizer_is_seen() -> None:
    """What this process let begin a moment ago may not be in its cache yet."""
    assert first(serving("b"), serving("a"), claimed=frozenset({"uid-b"})) == {"b"}


def test_other_targets_are_no_rivals() -> None:
    """There is one place for each cluster."""
    remote = serving("a")
    remote["spec"] = {"clusterProfileRef": {"name": "spoke", "namespace": "fleet"}}

    assert first(remote, serving("b")) == {"a", "b"}


def test_an_older_state_of_the_same_object_is_no_rival() -> None:
    """The cache may be behind the object that a write returned."""
    fresh = serving("a", finalizers=[FINALIZER])

    assert holder(fresh, [serving("a")], finalizer=FINALIZER, claimed=frozenset()) is fresh
