"""Run the simulation from the command line.

`python -m tests.simulation.run --seed N [--steps K | --only 3,5,8] [--trace] [--mutant NAME]` runs one seed exactly as
every other run of it; `--seeds A..B` runs many, says how far it is, and stops at the first that fails.
"""

import argparse
import sys
import time
from contextlib import nullcontext
from typing import Final

from tests.simulation.mutants import mutants
from tests.simulation.plan import Plan, Step, draw_plan
from tests.simulation.run_plan import run_plan
from tests.simulation.shrink import shortest, trace_lines

progress_seconds: Final = 5.0
"""Seconds between two lines of progress."""


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run_one(plan: Plan, steps: tuple[Step, ...], *, trace: bool) -> bool:
    """Run and describe one seed; whether it held."""
    outcome = run_plan(plan, steps)
    if trace:
        say("\n".join(trace_lines(outcome)))
    say(f"seed {plan.seed}: {plan.settings}")
    say(f"{len(steps)} steps, {outcome.applied} Events applied, {outcome.forks} forks, digest {outcome.digest}")
    say(f"violation: {outcome.violation}" if outcome.violation else "held")
    return outcome.violation is None


def run_many(first: int, last: int) -> bool:
    """Run seeds in order; whether all held. The first that fails is shortened and reported."""
    began = told = time.monotonic()
    applied = forks = 0
    for count, seed in enumerate(range(first, last + 1), 1):
        plan = draw_plan(seed)
        outcome = run_plan(plan)
        applied, forks = applied + outcome.applied, forks + outcome.forks
        if outcome.violation is not None:
            say(f"seed {seed} fails: {outcome.violation}; looking for the shortest trace")
            say(shortest(plan, outcome).report())
            return False
        now = time.monotonic()
        if now - told >= progress_seconds or seed == last:
            told = now
            say(f"{count} seeds, {applied} Events, {forks} forks, {count / (now - began):.1f} seeds/s")
    return True


def main() -> int:
    """Read the arguments; 0 when everything held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--seed", type=int, help="one seed")
    chosen.add_argument("--seeds", help="A..B, both included")
    parser.add_argument("--steps", type=int, help="only the first so many steps")
    parser.add_argument("--only", help="only these steps, by number, such as 3,5,8; empty for none")
    parser.add_argument("--trace", action="store_true", help="every step, commit, acknowledgement and death")
    parser.add_argument("--mutant", choices=sorted(mutants), help="with this decision of the code undone")
    asked = parser.parse_args()
    with mutants[asked.mutant]() if asked.mutant else nullcontext():
        if asked.seeds is not None:
            first, _, last = asked.seeds.partition("..")
            return 0 if run_many(int(first), int(last or first)) else 1
        plan = draw_plan(asked.seed)
        steps = plan.steps[: asked.steps]
        if asked.only is not None:
            numbers = {int(number) for number in asked.only.split(",") if number}
            steps = tuple(step for step in plan.steps if step.number in numbers)
        return 0 if run_one(plan, steps, trace=asked.trace) else 1


if __name__ == "__main__":
    sys.exit(main())
