"""Each judge finds what breaks its rule, and nothing in what does not."""

from tests.chaos import judges
from tests.chaos.evidence import (
    Evidence,
    Foreign,
    Held,
    Removed,
    Said,
    Span,
    Started,
    Taken,
    Write,
)
from tests.chaos.judges import Sighting

A, B = "operator-a", "operator-b"


def two_terms() -> Evidence:
    """The first operator led from 100 on, the other one from 150 on."""
    return Evidence(
        taken=[Taken(100, A, "a-1"), Taken(150, B, "b-1")],
        started=[Started(90, A), Started(91, B)],
    )


def write(user: str, at: float, cluster: str = "spoke1") -> Write:
    """A write that was accepted."""
    return Write(cluster, user, at, "patch configmaps x/y")


def convicted(evidence: Evidence, *writes: Write) -> list[float]:
    """When unlawful writes arrived."""
    return [each.at for each in judges.two_leaders(evidence, writes)]


def test_who_holds_the_lease_may_write() -> None:
    assert convicted(two_terms(), write(A, 101), write(A, 149.9), write(B, 150.1)) == []


def test_a_write_of_the_old_leader_after_another_took_the_lease_is_found() -> None:
    found = judges.two_leaders(two_terms(), [write(A, 150.1)])

    assert [each.invariant for each in found] == [judges.TWO_LEADERS]
    assert "operator-a wrote patch configmaps x/y on spoke1" in found[0].text
    assert "operator-b since 150.0 held the Lease" in found[0].text


def test_a_write_before_anybody_leads_and_one_by_who_never_did_are_found() -> None:
    assert convicted(two_terms(), write(A, 99), write(B, 120)) == [99, 120]


def test_a_write_after_the_lease_was_given_back_is_found() -> None:
    evidence = two_terms()
    evidence.taken.insert(1, Taken(140, A, ""))

    assert convicted(evidence, write(A, 139), write(A, 145)) == [145]


def test_a_process_that_was_started_anew_does_not_inherit_the_term() -> None:
    """It must take the Lease first, although it has the account of its predecessor."""
    evidence = two_terms()
    evidence.started.append(Started(120, A))
    assert convicted(evidence, write(A, 119), write(A, 125)) == [125]

    evidence.taken.insert(1, Taken(124, A, "a-2"))
    assert convicted(evidence, write(A, 125)) == []


def test_what_waited_before_a_frozen_server_may_arrive_when_it_thaws() -> None:
    """But not later, not elsewhere, and not from who did not lead meanwhile."""
    evidence = two_terms()
    evidence.held.append(Held("spoke1", Span(140, 180)))

    assert convicted(evidence, write(A, 181)) == []
    assert convicted(evidence, write(A, 186), write(A, 181, "spoke2")) == [186, 181]

    evidence.held[0] = Held("spoke1", Span(160, 180))
    assert convicted(evidence, write(A, 181)) == [181]


def test_a_way_that_holds_one_operator_back_excuses_only_that_one() -> None:
    evidence = two_terms()
    evidence.held.append(Held("spoke1", Span(140, 180), user=B))

    assert convicted(evidence, write(A, 170)) == [170]


def silence(**spans: Span) -> Evidence:
    """One leader since 100, and silent spokes."""
    return Evidence(
        taken=[Taken(100, A, "a-1")], silent={name: [span] for name, span in spans.items()}
    )


def said(at: float, status: str = "True", type_: str = "Ready", spoke: str = "spoke1") -> Said:
    """What a custom resource said."""
    return Said(at, f"KnativeServing/{spoke}", spoke, type_, status)


def test_a_condition_that_is_true_of_a_silent_spoke_is_found() -> None:
    evidence = silence(spoke1=Span(200))

    found = judges.untrue(
        evidence, [said(229), said(231), said(232, type_="TargetClusterResolved")]
    )

    assert [each.at for each in found] == [231, 232]
    assert "Ready is True, 31 s after spoke1 ended to answer" in found[0].text


def test_other_statuses_types_and_spokes_are_not() -> None:
    """What was known before of its Deployments may stay said."""
    evidence = silence(spoke1=Span(200))

    assert not judges.untrue(
        evidence,
        [said(250, "False"), said(250, type_="DeploymentsAvailable"), said(250, spoke="spoke2")],
    )


def test_a_spoke_that_answers_again_is_not_silent() -> None:
    assert not judges.untrue(silence(spoke1=Span(200, 240)), [said(241)])


def test_only_time_counts_in_which_a_leader_could_know() -> None:
    """Neither while the hub is struck, nor in the first half minute after that or of a term."""
    evidence = silence(spoke1=Span(200))
    evidence.troubled.append(Span(210, 260))
    assert not judges.untrue(evidence, [said(255), said(289)])
    assert len(judges.untrue(evidence, [said(291)])) == 1

    evidence.taken.append(Taken(270, B, "b-1"))
    assert not judges.untrue(evidence, [said(299)])
    assert len(judges.untrue(evidence, [said(301)])) == 1


def test_what_a_deleted_custom_resource_left_is_found() -> None:
    found = judges.left_behind(
        [Removed(1, "KnativeServing/a", ()), Removed(2, "KnativeServing/b", ("secrets x/y",))]
    )

    assert [each.text for each in found] == ["KnativeServing/b is gone, and left secrets x/y"]


def test_a_foreign_object_that_was_touched_is_found() -> None:
    """Whether it is gone, made anew or changed."""
    before = {
        name: Foreign("spoke1", name, uid=f"uid-{name}", version="5")
        for name in ("a", "b", "c", "d")
    }
    now = Sighting(
        9,
        "spoke1",
        {
            "a": before["a"],
            "b": Foreign("spoke1", "b", uid="uid-b", version="6"),
            "c": Foreign("spoke1", "c", uid="another", version="5"),
        },
    )

    assert [each.text for each in judges.touched(before, now)] == [
        "b on spoke1 was changed: version 5 became 6",
        "c on spoke1 is another object of the same name",
        "d on spoke1 is gone",
    ]
