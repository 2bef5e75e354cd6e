"""Selection of clusters in their order, distributed over topologies.

A topology is the value of a label or a claim. The clusters of one combination of topologies wait in
one line, the best first; each time, the best cluster is taken of those whose topologies allow it.
"""

from collections.abc import Mapping, Sequence

from knfleet.api.cluster.placement import SpreadConstraint
from knfleet.hub.placement.scheduler.schedule_model import CandidateCluster

Topologies = tuple[str | None, ...]


def topologies(cluster: CandidateCluster, constraints: Sequence[SpreadConstraint]) -> Topologies:
    """The topology of a cluster by each constraint; None when it has none."""
    return tuple(
        (cluster.labels if each.topology_key_type == "Label" else cluster.claims).get(
            each.topology_key
        )
        for each in constraints
    )


def select(
    ranked: Sequence[CandidateCluster], constraints: Sequence[SpreadConstraint], wanted: int
) -> list[CandidateCluster]:
    """So many of the clusters, which are given in their order, as far as constraints allow."""
    if not constraints:
        return list(ranked[:wanted])
    return Selection(ranked, constraints).take(wanted)


class Selection:
    """Clusters in lines, and how many of each topology are selected."""

    def __init__(
        self, ranked: Sequence[CandidateCluster], constraints: Sequence[SpreadConstraint]
    ) -> None:
        self.constraints = constraints
        self.lines: dict[Topologies, list[tuple[int, CandidateCluster]]] = {}
        for position, cluster in enumerate(ranked):
            self.lines.setdefault(topologies(cluster, constraints), []).append((position, cluster))
        for line in self.lines.values():
            line.reverse()
        self.counts: list[dict[str, int]] = [
            dict.fromkeys((each for each in column if each is not None), 0)
            for column in zip(*self.lines, strict=True)
        ] or [{} for _ in constraints]

    def take(self, wanted: int) -> list[CandidateCluster]:
        """So many clusters."""
        taken: list[CandidateCluster] = []
        while len(taken) < wanted and (line := self.best()) is not None:
            _, cluster = self.lines[line].pop()
            taken.append(cluster)
            if not self.lines[line]:
                del self.lines[line]
            for counts, topology in zip(self.counts, line, strict=True):
                if topology is not None:
                    counts[topology] += 1
        return taken

    def best(self) -> Topologies | None:
        """The line whose first cluster is taken next; None when constraints allow none."""
        least = [min(counts.values(), default=0) for counts in self.counts]
        found: tuple[tuple[int, ...], int] | None = None
        chosen: Topologies | None = None
        for line, waiting in self.lines.items():
            excess = self.excess(line, least)
            if excess is None:
                continue
            key = (excess, waiting[-1][0])
            if found is None or key < found:
                found, chosen = key, line
        return chosen

    def excess(self, line: Topologies, least: Sequence[int]) -> tuple[int, ...] | None:
        """By how much each constraint would be exceeded; None when one forbids it."""
        result: list[int] = []
        for constraint, counts, topology, lowest in zip(
            self.constraints, self.counts, line, least, strict=True
        ):
            strict = constraint.when_unsatisfiable == "DoNotSchedule"
            if topology is None:
                # A cluster outside of all topologies cannot be distributed: the last choice.
                over = len(counts) + max(counts.values(), default=0) + 1
            else:
                over = max(counts[topology] + 1 - lowest - constraint.max_skew, 0)
            if over and strict:
                return None
            result.append(over)
        return tuple(result)


def scores(
    ranked: Sequence[CandidateCluster], constraints: Sequence[SpreadConstraint]
) -> Mapping[str, int]:
    """Scores for the prioritizer Spread: the best cluster of each topology gets the most.

    The second has less, and so on; a cluster outside of all topologies has the least.
    """
    if not constraints:
        return dict.fromkeys((each.name for each in ranked), 0)
    sums = dict.fromkeys((each.name for each in ranked), 0)
    for index in range(len(constraints)):
        places: dict[str, int] = {}
        positions: dict[str, int | None] = {}
        for cluster in ranked:
            topology = topologies(cluster, constraints)[index]
            if topology is None:
                positions[cluster.name] = None
                continue
            positions[cluster.name] = places.get(topology, 0)
            places[topology] = places.get(topology, 0) + 1
        last = max(places.values(), default=1) - 1
        for name, position in positions.items():
            if position is None:
                sums[name] -= 100
            else:
                sums[name] += 100 if not last else 100 - 200 * position // last
    return {name: int(total / len(constraints)) for name, total in sums.items()}
