"""The order of writes: a selected cluster is in some decision object at any time."""

from collections.abc import Iterator
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from knfleet.hub.placement.decisions.decision_writer import batches
from knfleet.hub.placement.decisions.write_order import Content, Write, ordered_writes

State = dict[str, Content]


def state(**objects: str) -> State:
    return {name: frozenset(clusters) for name, clusters in objects.items()}


def spares() -> Iterator[str]:
    return (f"spare{number}" for number in count())


def after(current: State, writes: list[Write]) -> list[State]:
    """Every state that a reader may see."""
    seen = [current]
    for write in writes:
        following = dict(seen[-1])
        if write.clusters is None:
            del following[write.name]
        else:
            following[write.name] = write.clusters
        seen.append(following)
    return seen


def check(current: State, target: State, most: int) -> list[Write]:
    writes = ordered_writes(current, target, most, spares())
    seen = after(current, writes)
    staying = frozenset[str]().union(*current.values()) & frozenset[str]().union(*target.values())

    assert seen[-1] == target
    for each in seen:
        held = frozenset[str]().union(*each.values())
        assert staying <= held, "a cluster is in no object"
    for write in writes:
        assert write.clusters is None or len(write.clusters) <= most
    return writes


def test_unchanged_objects_are_not_written():
    same = state(a="xy", b="z")

    assert ordered_writes(same, same, 100, spares()) == []


def test_clusters_that_shift_are_added_before_they_are_removed():
    """One more in front, and the last of each object goes to the next."""
    writes = check(state(a="bc", b="de", c="f"), state(a="ab", b="cd", c="ef"), 2)

    assert [each.name for each in writes] == ["c", "b", "a"]


def test_objects_that_exchange_clusters_hold_both_for_a_while():
    writes = check(state(a="x", b="y"), state(a="y", b="x"), 100)

    assert [each.name for each in writes] == ["a", "b", "a"]
    assert writes[0].clusters == frozenset("xy")


def test_full_objects_exchange_clusters_by_a_spare_one():
    writes = check(state(a="wx", b="yz"), state(a="yz", b="wx"), 2)

    assert writes[0] == Write("spare0", frozenset("wx"), like="a")
    assert writes[-1] == Write("spare0", None)


def test_several_spare_objects_may_be_needed():
    """A spare object that waits for others must not have a spare of its own."""
    current = state(a="ab", b="cd", c="e", d="fg", e="hi", f="j")
    target = state(a="cd", b="ab", c="j", d="hi", e="fg", f="e")

    check(current, target, 2)


def test_superfluous_objects_are_deleted_last():
    writes = check(state(a="x", b="y"), state(a="xy"), 100)

    assert writes == [Write("a", frozenset("xy")), Write("b", None)]


def test_an_object_is_deleted_though_its_clusters_are_no_longer_wanted():
    assert check(state(a="x", b="y"), state(a="x"), 100) == [Write("b", None)]


def test_the_first_object_is_written_though_it_is_empty():
    assert ordered_writes({}, state(a=""), 100, spares()) == [Write("a", frozenset())]


LETTERS = "abcdefghijklmnop"


@st.composite
def layouts(draw: st.DrawFn) -> tuple[State, State, int]:
    """Two ways to put clusters into objects."""
    most = draw(st.integers(1, 4))

    def layout() -> State:
        clusters = draw(st.permutations(LETTERS))[: draw(st.integers(0, len(LETTERS)))]
        names = draw(st.permutations([f"o{number}" for number in range(20)]))
        parts = [clusters[start : start + most] for start in range(0, len(clusters), most)]
        return {name: frozenset(part) for name, part in zip(names, parts, strict=False)}

    return layout(), layout(), most


@given(layouts())
def test_no_order_of_writes_loses_a_cluster(case: tuple[State, State, int]):
    current, target, most = case

    writes = check(current, target, most)

    assert len(writes) <= 3 * (len(current) + len(target)) + 1


@given(layouts(), st.sets(st.sampled_from(LETTERS)))
def test_nor_if_clusters_were_in_several_objects(
    case: tuple[State, State, int], repeated: set[str]
):
    """What an earlier process left behind when it was killed."""
    current, target, most = case
    current = {name: content | frozenset(sorted(repeated)[:1]) for name, content in current.items()}

    check(current, target, max(most, 5))


def test_new_objects_are_written_at_once_and_all_else_in_turn():
    writes = [
        *(Write("n1", frozenset("a")), Write("n2", frozenset("b"))),
        *(Write("o1", frozenset("c")), Write("o2", None), Write("n1", None)),
    ]

    found = batches(writes, {"o1", "o2"})

    assert [[each.name for each in batch] for batch in found] == [
        ["n1", "n2"],
        ["o1"],
        ["o2"],
        ["n1"],
    ]
