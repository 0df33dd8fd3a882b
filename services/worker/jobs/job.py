"""What every job is: a number of steps over a JSON state, and a result that a second, independent way confirms.

A Work Contract describes a job by a `Pace` of its own type; `bind` gives it the contract's input Artifacts.
"""

import json
from typing import Any, Final, Protocol

from msgspec import Struct

steps_max: Final = 1_000
"""Steps of one job."""
step_millis_max: Final = 60_000
"""Milliseconds that one step may be asked to take at least."""

State = dict[str, Any]
"""What a job knows between two steps: JSON only, so that it can lie in a checkpoint."""


class Pace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How a job is cut: steps, milliseconds that each takes at least, and after how many it offers its slot."""

    steps: int = 4
    step_millis: int = 0
    checkpoint_every: int = 2

    def __post_init__(self) -> None:
        """Bounds of the three numbers."""
        if not 1 <= self.steps <= steps_max:
            raise ValueError(f"steps is {self.steps}, not 1 to {steps_max}")
        if not 0 <= self.step_millis <= step_millis_max:
            raise ValueError(f"stepMillis is {self.step_millis}, not 0 to {step_millis_max}")
        if self.checkpoint_every < 1:
            raise ValueError(f"checkpointEvery is {self.checkpoint_every}, not 1 or more")


class Result(Struct, frozen=True, kw_only=True):
    """The deliverable: its bytes and media type, and a line for people."""

    content: bytes
    media_type: str
    summary: str


class Job(Protocol):
    """Deterministic work with its inputs at hand. Each method is pure."""

    def begin(self) -> State:
        """The state before the first step."""
        ...

    def advance(self, state: State, step: int) -> State:
        """The state after step `step`, counted from 0."""
        ...

    def finish(self, state: State) -> Result:
        """The result of the state after the last step."""
        ...

    def confirm(self, result: Result) -> bool:
        """Whether the result is right, found by another way than the steps."""
        ...


def part(length: int, step: int, steps: int) -> slice:
    """The slice of `length` things that step `step` of `steps` handles; together they cover each thing once."""
    return slice(length * step // steps, length * (step + 1) // steps)


def json_document(value: Any) -> bytes:
    """Stable, readable JSON for results."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
