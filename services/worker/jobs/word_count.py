"""Count the words of a text."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

from services.worker.jobs.job import Pace, Result, State, json_document, part

_WORD: Final = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


class WordCount(Pace, frozen=True, kw_only=True, tag_field="type", tag="word-count"):
    """Words, distinct words and the count of each, ignoring case."""

    result_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "required": ["words", "distinctWords", "counts"],
        "properties": {
            "words": {"type": "integer"},
            "distinctWords": {"type": "integer"},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }

    input: str

    def bind(self, _inputs: Sequence[bytes], /) -> Self:
        """The input lies in the contract itself."""
        return self

    def begin(self) -> State:
        """No word counted yet."""
        return {"counts": {}}

    def advance(self, state: State, step: int) -> State:
        """Count this step's part of the words."""
        words = _words(self.input)
        counts: Counter[str] = Counter(state["counts"])
        counts.update(words[part(len(words), step, self.steps)])
        return {"counts": dict(counts)}

    def finish(self, state: State) -> Result:
        """`{"words", "distinctWords", "counts"}`."""
        counts: dict[str, int] = state["counts"]
        total = sum(counts.values())
        body = {"words": total, "distinctWords": len(counts), "counts": counts}
        return Result(
            content=json_document(body),
            media_type="application/json",
            summary=f"{total} words, {len(counts)} distinct",
        )

    def confirm(self, result: Result) -> bool:
        """Count once more in one pass."""
        return bool(json.loads(result.content)["counts"] == dict(Counter(_words(self.input))))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
