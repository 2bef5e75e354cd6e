"""What must hold at every moment, as functions of what was seen; each returns what broke it."""

import bisect
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from tests.chaos.evidence import Evidence, Foreign, Held, Removed, Said, Taken, Violation, Write

TWO_LEADERS = "never two leaders act"
UNTRUE = "no condition is True for a spoke that does not answer"
LEFT_BEHIND = "nothing of a deleted custom resource is left"
TOUCHED = "no foreign object is touched"

SILENCE_SECONDS = 30.0
AFTER_SECONDS = 5.0
"""How long after it was thawed a server may still read what was sent to it before."""
JUDGED_TYPES = ("TargetClusterResolved", "Ready")


class Terms:
    """Who held the Lease when."""

    def __init__(self, taken: Iterable[Taken]) -> None:
        self.taken = sorted(taken, key=lambda each: each.at)
        self.begins = [each.at for each in self.taken]

    def at(self, moment: float) -> Taken | None:
        """The term that a moment is in."""
        index = bisect.bisect_right(self.begins, moment)
        return self.taken[index - 1] if index else None

    def between(self, begin: float, end: float) -> list[Taken]:
        """All terms of a time."""
        first = max(0, bisect.bisect_right(self.begins, begin) - 1)
        return self.taken[first : bisect.bisect_right(self.begins, end)]


def two_leaders(evidence: Evidence, writes: Sequence[Write]) -> list[Violation]:
    """Accepted writes of a process that did not hold the Lease when they arrived.

    A term begins when the hub received the write by which its holder took the Lease, and ends when
    it received the next one's, or that by which the Lease was given back. A process that was
    started within a term of its predecessor holds nothing. What a server refused did nothing.

    One thing no client can rule out: bytes that have left a process arrive later when the server is
    frozen, or the network holds them back. What arrives within a few seconds after such a time may
    have been sent at any moment of it, and is lawful if its sender led at one of them.
    """
    terms = Terms(evidence.taken)
    starts = sorted((each.user, each.at) for each in evidence.started)
    return [
        Violation(write.at, TWO_LEADERS, told(write, terms.at(write.at)))
        for write in writes
        if not is_lawful(write, terms, sent_since(write, evidence.held), starts)
    ]


def sent_since(write: Write, held: Iterable[Held]) -> float:
    """The earliest moment at which a write may have been sent."""
    return min(
        (
            each.span.begin
            for each in held
            if each.cluster == write.cluster
            and each.user in ("", write.user)
            and each.span.begin <= write.at < each.span.end + AFTER_SECONDS
        ),
        default=write.at,
    )


def is_lawful(
    write: Write, terms: Terms, since: float, starts: Sequence[tuple[str, float]]
) -> bool:
    """Whether the writer led at a moment at which it may have sent a write."""
    for term in terms.between(since, write.at):
        if term.user != write.user or not term.holder:
            continue
        # Who was started after its term began is not who took the Lease then.
        begun_anew = [at for user, at in starts if user == write.user and at > term.at]
        if not begun_anew or since < min(begun_anew):
            return True
    return False


def told(write: Write, term: Taken | None) -> str:
    """What somebody reads about an unlawful write."""
    holder = "nobody" if term is None or not term.holder else f"{term.user} since {term.at:.1f}"
    return f"{write.user} wrote {write.what} on {write.cluster}, while {holder} held the Lease"


def calm_since(evidence: Evidence, at: float) -> float | None:
    """Since when one leader could work undisturbed at a moment; None when none could."""
    if any(span.covers(at) for span in evidence.troubled):
        return None
    term = Terms(evidence.taken).at(at)
    if term is None or not term.holder:
        return None
    return max([term.at, *(span.end for span in evidence.troubled if span.end <= at)])


def unanswered_seconds(evidence: Evidence, spoke: str, at: float) -> float:
    """How long a spoke has not answered at a moment, as far as a leader could know and tell.

    Only time counts since the present leader has the Lease, and since neither the hub nor an
    operator was frozen, killed or cut off.
    """
    spans = [span for span in evidence.silent.get(spoke, ()) if span.covers(at)]
    calm = calm_since(evidence, at)
    return at - max(spans[0].begin, calm) if spans and calm is not None else 0.0


def untrue(evidence: Evidence, said: Iterable[Said]) -> list[Violation]:
    """Conditions that say True of a spoke that has not answered for half a minute."""
    found: list[Violation] = []
    for each in said:
        seconds = unanswered_seconds(evidence, each.spoke, each.at)
        is_judged = each.type in JUDGED_TYPES and seconds > SILENCE_SECONDS
        if is_judged and each.status == "True":
            text = f"{each.resource}: {each.type} is True, {seconds:.0f} s after {each.spoke} ended"
            found.append(Violation(each.at, UNTRUE, f"{text} to answer"))
    return found


def left_behind(removed: Iterable[Removed]) -> list[Violation]:
    """What was still on a spoke when the custom resource was gone from the hub."""
    return [
        Violation(each.at, LEFT_BEHIND, f"{each.resource} is gone, and left {', '.join(each.left)}")
        for each in removed
        if each.left
    ]


class Sighting(Struct, frozen=True):
    """The foreign objects of one cluster, as they were found."""

    at: float
    cluster: str
    found: Mapping[str, Foreign]


def touched(before: Mapping[str, Foreign], now: Sighting) -> list[Violation]:
    """Foreign objects that are gone, made anew, or changed."""
    found: list[Violation] = []
    for name, was in before.items():
        known = now.found.get(name)
        if known == was:
            continue
        if known is None:
            fate = "is gone"
        elif known.uid != was.uid:
            fate = "is another object of the same name"
        else:
            fate = f"was changed: version {was.version} became {known.version}"
        found.append(Violation(now.at, TOUCHED, f"{name} on {now.cluster} {fate}"))
    return found
