"""In which order decision objects are written, so that a selected cluster is always in one of them.

A reader of all objects may see any state between two writes. So an object gives a cluster up only
when another one has it. Where objects wait for each other, one is written with more clusters than
it will have, or, if that were too many for one object, a spare object has them for the time being.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct

Content = frozenset[str]


class Write(Struct, frozen=True):
    """An object gets some clusters, or is deleted."""

    name: str
    clusters: Content | None
    """None: delete it."""
    like: str = ""
    """Of a spare object: the one whose clusters it has."""


def ordered_writes(
    current: Mapping[str, Content], target: Mapping[str, Content], most: int, spares: Iterator[str]
) -> list[Write]:
    """Writes that lead from one state to the other.

    Objects that are only in `current` are deleted. `most` is how many clusters one object can have,
    and `spares` gives names that no object has.
    """
    return Transition(current, target, most, spares).writes()


class Transition:
    """The way from one state to another."""

    def __init__(
        self,
        current: Mapping[str, Content],
        target: Mapping[str, Content],
        most: int,
        spares: Iterator[str],
    ) -> None:
        self.state: dict[str, Content] = dict(current)
        self.target = target
        self.most = most
        self.spares = spares
        self.wanted: Content = frozenset[str]().union(*target.values())
        self.holders = Counter(cluster for content in current.values() for cluster in content)
        self.pending = [
            name for name in target if name not in current or current[name] != target[name]
        ]
        self.leaving = [name for name in current if name not in target]
        self.done: list[Write] = []

    def writes(self) -> list[Write]:
        """All writes, in their order."""
        while self.pending or self.leaving:
            ready = [name for name in self.pending if not self.orphans(name)]
            for name in ready:
                # Others may have been written meanwhile, but none took a cluster away for good.
                if not self.orphans(name):
                    self.write(name, self.target[name])
                    self.pending.remove(name)
            gone = [name for name in self.leaving if not self.orphans(name)]
            for name in gone:
                if not self.orphans(name):
                    self.delete(name)
            if not ready and not gone:
                self.make_way()
        return self.done

    def orphans(self, name: str) -> Content:
        """Clusters that would be in no object if one were written or deleted now."""
        given_up = self.state.get(name, frozenset[str]()) - self.target.get(name, frozenset[str]())
        return frozenset(
            cluster for cluster in given_up & self.wanted if self.holders[cluster] == 1
        )

    def make_way(self) -> None:
        """Objects wait for each other: have one of them, or a spare, hold more for a while.

        It is one that does not have all of its clusters yet. There is always one: if all had
        theirs, every cluster would be where it belongs, and none would wait.
        """
        lacking = [each for each in self.pending if not self.target[each] <= self.state[each]]
        name = min(lacking, key=lambda each: len(self.orphans(each)))
        orphans = self.orphans(name)
        everything = self.target[name] | orphans
        if len(everything) <= self.most:
            self.write(name, everything)
        else:
            spare = next(self.spares)
            self.write(spare, orphans, like=name)
            self.leaving.append(spare)

    def write(self, name: str, clusters: Content, like: str = "") -> None:
        """Give an object its clusters."""
        self.replace(name, clusters)
        self.done.append(Write(name, clusters, like))

    def delete(self, name: str) -> None:
        """Delete an object."""
        self.replace(name, frozenset())
        del self.state[name]
        self.leaving.remove(name)
        self.done.append(Write(name, None))

    def replace(self, name: str, clusters: Content) -> None:
        """Count which clusters an object has now."""
        before = self.state.get(name, frozenset[str]())
        self.holders.subtract(before - clusters)
        self.holders.update(clusters - before)
        self.state[name] = clusters
