"""Which of the existing names may have been meant."""

import difflib
from collections.abc import Iterable

LIKENESS = 0.6
NAMES_SHOWN = 6


def nearest(name: str, names: Iterable[str]) -> str:
    """The name that is most like another; empty when none is like it."""
    known = {each.casefold(): each for each in names}
    found = difflib.get_close_matches(name.casefold(), known, n=1, cutoff=LIKENESS)
    return known[found[0]] if found else ""


def meant(name: str, names: Iterable[str]) -> str:
    """What to say about a name that there is not: the nearest one, else what there is."""
    known = sorted(set(names))
    if not known:
        return "there are none"
    if like := nearest(name, known):
        return f"did you mean {like}?"
    more = len(known) - NAMES_SHOWN
    there = ", ".join(known[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"there {'is' if len(known) == 1 else 'are'} {there}"
