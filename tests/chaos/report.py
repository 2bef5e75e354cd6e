"""What came of a run: a text for people and JSON for programs, with how to play it again."""

from pathlib import Path

import msgspec
from msgspec import Struct

from tests.chaos.evidence import Violation
from tests.chaos.plan import Step


class Line(Struct, frozen=True):
    """Something that happened, so many seconds after the first fault could."""

    at: float
    text: str

    def __str__(self) -> str:
        return f"[{self.at:7.1f} s] {self.text}"


class Report(Struct, frozen=True):
    """One run."""

    seed: int
    minutes: float
    spokes: int
    steps: tuple[Step, ...]
    timeline: tuple[Line, ...]
    violations: tuple[Violation, ...]
    problem: str
    """Why the run did not end as it should, beside violations; empty when it did."""
    converged_seconds: float
    figures: dict[str, int]

    @property
    def is_green(self) -> bool:
        """Whether everything held."""
        return not self.violations and not self.problem

    @property
    def replay(self) -> str:
        """The command that plays the same faults again."""
        spokes = f" CHAOS_SPOKES={self.spokes}" if self.spokes != 4 else ""
        return f"CHAOS_SEED={self.seed} CHAOS_MINUTES={self.minutes:g}{spokes} make chaos"

    def text(self) -> str:
        """The whole report for people."""
        return "\n".join((*map(str, self.timeline), "", self.verdict(), ""))

    def verdict(self) -> str:
        """The last words of a run."""
        counted = ", ".join(f"{count} {name}" for name, count in self.figures.items())
        lines = [f"seed {self.seed}, {self.minutes:g} minutes, {self.spokes} spokes: {counted}"]
        lines += [f"violated: {each.invariant}: {each.text}" for each in self.violations]
        if self.problem:
            lines.append(self.problem)
        if self.is_green:
            lines.append(f"all held; converged {self.converged_seconds:.1f} s after the last fault")
        else:
            lines.append(f"play it again with: {self.replay}")
        return "\n".join(lines)


def write(report: Report, folder: Path) -> Path:
    """Write a report as text and as JSON; where the text is."""
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / f"seed-{report.seed}.txt"
    text.write_text(report.text())
    coded = msgspec.json.format(msgspec.json.encode(report), indent=2)
    text.with_suffix(".json").write_bytes(coded + b"\n")
    return text
