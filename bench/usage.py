"""CPU seconds of everything that takes part: they tell more than time on a machine with others."""

from collections import defaultdict
from collections.abc import Mapping

import psutil

from knfleet.dev import processes
from testbed.clusters import Lent

OPERATOR = "operator"


def usage(lent: Lent, operator: int | None = None) -> dict[str, float]:
    """CPU seconds that all clusters beside a cluster, the operator and this process used so far."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, recorded in processes.recorded(lent.folder).items():
        process = recorded.live()
        if process is not None:
            cluster, _, component = name.rpartition(".")
            place = "hub " if cluster == "hub" else ("spokes " if cluster else "")
            found[place + component] += seconds(process)
    if operator is not None:
        process = psutil.Process(operator)
        found[OPERATOR] = sum(map(seconds, (process, *process.children(recursive=True))))
    found["bench"] = seconds(psutil.Process())
    return dict(found)


def used(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What was used between two looks, without what is next to nothing."""
    every = {name: after[name] - before.get(name, 0.0) for name in sorted(after)}
    return {name: value for name, value in every.items() if value > 0.02}


def seconds(process: psutil.Process) -> float:
    """The CPU seconds of one process, with those of children that are gone."""
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system
