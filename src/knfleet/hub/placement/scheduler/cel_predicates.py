"""CEL expressions of predicates: which clusters they select.

An expression is evaluated once for each version of a cluster; results are kept. A pass evaluates
for a limited time, so that one Placement with costly expressions does not delay all others: what is
left is for the next pass.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from knfleet.expressions.cel import (
    CompileError,
    Environment,
    EvaluationError,
    Function,
    Program,
    Values,
)
from knfleet.expressions.cel_cost import Size
from knfleet.expressions.cel_kubernetes import KUBERNETES
from knfleet.hub.placement.scheduler.fleet_state import PlacementView
from knfleet.hub.placement.scheduler.schedule_model import CandidateCluster

VARIABLE = "managedCluster"
SCORES = "knfleet.dev/scores"
"""Key in the variable under which the function `scores` finds what it returns."""
LONGEST = 100
KEPT = 512
"""Expressions whose results are kept."""
PASS_SECONDS = 0.25
"""How long one pass evaluates, at most."""

Result = bool | str
"""Whether a cluster is selected; a text says why the expression has no value."""


class Unfinished(Exception):
    """The time of a pass is over; what was evaluated is kept for the next."""


def cluster_scores(cluster: dict[str, Any], resource: str) -> list[dict[str, Any]]:
    """The scores of an AddOnPlacementScore of a cluster; without one there is no value."""
    found = cluster.get(SCORES, {}).get(resource)
    if found is None:
        raise ValueError(f"the cluster has no AddOnPlacementScore {resource[:LONGEST]!r}")
    return found


FUNCTIONS: tuple[Function, ...] = (
    *KUBERNETES,
    Function(
        "scores", ("map", "string"), "list", cluster_scores, member=True, size=Size(65536, 512, 8)
    ),
)


class CelPredicates:
    """Evaluates the expressions of all Placements."""

    def __init__(self, pass_seconds: float = PASS_SECONDS) -> None:
        self.environment = Environment({VARIABLE: "map"}, FUNCTIONS)
        self.results: OrderedDict[str, dict[str, tuple[str, Result]]] = OrderedDict()
        self.pass_seconds = pass_seconds
        self.ends = float("inf")
        self.latest: tuple[str, Values] | None = None

    def begin(self) -> None:
        """A pass begins."""
        self.ends = time.monotonic() + self.pass_seconds

    def problem(self, expressions: Sequence[str]) -> str:
        """What is wrong with expressions, whatever the cluster; empty when nothing is."""
        for expression in expressions:
            try:
                self.environment.condition(expression)
            except CompileError as error:
                return f"CEL expression {expression[:200]!r}: {error}"
        return ""

    def select(
        self, expressions: Sequence[str], cluster: CandidateCluster, view: PlacementView
    ) -> Result:
        """Whether all expressions are true for a cluster, or why one has no value."""
        for expression in expressions:
            result = self.result(expression, cluster, view)
            if result is not True:
                return result
        return True

    def result(self, expression: str, cluster: CandidateCluster, view: PlacementView) -> Result:
        """The value of one expression; raises Unfinished."""
        known = self.results.setdefault(expression, {})
        self.results.move_to_end(expression)
        version = f"{cluster.version}/{view.score_versions.get(cluster.name, 0)}"
        found = known.get(cluster.name)
        if found is not None and found[0] == version:
            return found[1]
        if time.monotonic() > self.ends:
            raise Unfinished
        program = self.environment.condition(expression)
        value = self.evaluated(program, version, cluster, view)
        known[cluster.name] = (version, value)
        self.forget()
        return value

    def evaluated(
        self, program: Program, version: str, cluster: CandidateCluster, view: PlacementView
    ) -> Result:
        """Evaluate an expression for a cluster."""
        if self.latest is None or self.latest[0] != version:
            self.latest = (version, self.environment.values({VARIABLE: given(cluster, view)}))
        try:
            return program.is_true(self.latest[1])
        except EvaluationError as error:
            return str(error)

    def forget(self) -> None:
        """Keep only the latest expressions."""
        while len(self.results) > KEPT:
            self.results.popitem(last=False)

    def remove(self, cluster: str) -> None:
        """Forget a cluster that is gone."""
        # A pass may be adding expressions in its thread.
        for known in list(self.results.values()):
            known.pop(cluster, None)


def given(cluster: CandidateCluster, view: PlacementView) -> dict[str, Any]:
    """The variable's value for a cluster."""
    own = view.scores.get(cluster.name)
    if not own:
        return cluster.manifest
    scores = {
        resource: [
            {"name": name, "value": value, "quantity": value}
            for name, value in found.values.items()
        ]
        for resource, found in own.items()
    }
    return {**cluster.manifest, SCORES: scores}
