"""Compile the JSON results of other WorkItems into one Markdown report."""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from services.worker.jobs.job import Pace, Result, State, part


class CompileReport(Pace, frozen=True, kw_only=True, tag_field="type", tag="compile-report"):
    """A report with one section per input Artifact, in the contract's order. `sections` names them."""

    result_schema: ClassVar[dict[str, Any]] = {"type": "string", "contentMediaType": "text/markdown"}

    title: str
    sections: tuple[str, ...]

    def __post_init__(self) -> None:
        """A report has something to report."""
        super().__post_init__()
        if not self.sections:
            raise ValueError("sections is empty: name one section per input Artifact")

    def bind(self, inputs: Sequence[bytes], /) -> "Compilation":
        """Pair sections and inputs. Raises ValueError when their numbers differ or an input is not JSON."""
        if len(inputs) != len(self.sections):
            raise ValueError(f"{len(inputs)} input Artifacts for {len(self.sections)} sections")
        facts = tuple(tuple(_facts(json.loads(raw))) for raw in inputs)
        return Compilation(self.title, tuple(zip(self.sections, facts, strict=True)), self.steps)


class Compilation(Struct, frozen=True):
    """A report being written: its title, each section's name and lines, and the number of steps."""

    title: str
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    steps: int

    def begin(self) -> State:
        """Only the title."""
        return {"parts": [f"# {self.title}\n"]}

    def advance(self, state: State, step: int) -> State:
        """Write this step's part of the sections."""
        cut = self.sections[part(len(self.sections), step, self.steps)]
        return {"parts": [*state["parts"], *("\n".join([f"## {name}\n", *lines, ""]) for name, lines in cut)]}

    def finish(self, state: State) -> Result:
        """The Markdown text."""
        return Result(
            content="\n".join(state["parts"]).encode(),
            media_type="text/markdown",
            summary=f"report with {len(self.sections)} sections",
        )

    def confirm(self, result: Result) -> bool:
        """Every line of every section stands in the report, in order."""
        written = iter(result.content.decode().splitlines())
        return all(line in written for _, lines in self.sections for line in lines)


def _facts(value: Any, path: str = "") -> list[str]:
    """One Markdown line per leaf of a JSON value."""
    if isinstance(value, dict):
        return [line for key in sorted(value) for line in _facts(value[key], f"{path} · {key}" if path else key)]
    if isinstance(value, list):
        return [line for number, item in enumerate(value, 1) for line in _facts(item, f"{path} {number}")]
    return [f"- {path}: {value}"]
