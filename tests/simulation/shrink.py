"""From a failing seed to the fewest of its steps that still fail, and to words for it."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from tests.simulation.plan import Plan, Step
from tests.simulation.run_plan import Outcome, run_plan

runs_max: Final = 150
"""Runs spent on one failing seed."""
shown_notes_max: Final = 60
"""Lines of the trace in a report; the whole of it comes with `--trace`."""


class Failure(Struct, frozen=True):
    """A failing seed with the steps that are left of it, and the outcome of just these."""

    plan: Plan
    steps: tuple[Step, ...]
    outcome: Outcome

    def report(self) -> str:
        """What is wrong, how to see it again, and the last lines of the shortest trace."""
        numbers = ",".join(str(step.number) for step in self.steps)
        steps = ", ".join(f"{step.number} {step.kind}" for step in self.steps)
        lines = list(trace_lines(self.outcome))
        skipped = [] if len(lines) <= shown_notes_max else [f"  … {len(lines) - shown_notes_max} lines before"]
        return "\n".join(
            [
                f"seed {self.plan.seed}: {self.outcome.violation}",
                f"steps left of {len(self.plan.steps)}: {steps or 'none'}",
                f"again:     python -m tests.simulation.run --seed {self.plan.seed} --trace",
                f"shortest:  python -m tests.simulation.run --seed {self.plan.seed} --only '{numbers}' --trace",
                *skipped,
                *lines[-shown_notes_max:],
            ]
        )


def shortest(plan: Plan, outcome: Outcome) -> Failure:
    """The shortest beginning of a failing plan that fails, then without each step that is not needed for it."""
    runs = 0
    found = Failure(plan, plan.steps, outcome)
    for count in range(len(plan.steps)):
        runs += 1
        tried = run_plan(plan, plan.steps[:count])
        if tried.violation is not None:
            found = Failure(plan, plan.steps[:count], tried)
            break
    for step in reversed(found.steps):
        if runs >= runs_max:
            break
        runs += 1
        fewer = tuple(each for each in found.steps if each is not step)
        tried = run_plan(plan, fewer)
        if tried.violation is not None:
            found = Failure(plan, fewer, tried)
    return found


def trace_lines(outcome: Outcome) -> Iterable[str]:
    """The notes of a run, one line each."""
    for at, what, details in outcome.notes:
        yield f"  {at:9.4f}  {what}{_details(details)}"


def _details(details: Any) -> str:
    if details is None:
        return ""
    if not isinstance(details, list):
        return f" {details}"
    return ": " + "; ".join(_change(*change) for change in details)


def _change(kind: str, *values: Any) -> str:
    shown = (_value(value) for value in values)
    return f"{kind} {' '.join(shown)}"


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()[:8]
    if isinstance(value, tuple):
        return f"({' '.join(_value(each) for each in value)})"
    text = str(value)
    return text.rpartition(":")[2][:24] if text.startswith("urn:") else text[:24]
