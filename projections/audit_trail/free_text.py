"""The words in a payload that people wrote: titles, objectives, Messages, reasons, whatever the kind.

They are found by the names of their members, so that the text of a kind that nobody has thought of yet is found too.
Pure.
"""

from collections import defaultdict
from typing import Any, Final

import msgspec

text_members: Final = (
    "title",
    "objective",
    "goal",
    "text",
    "feedback",
    "reason",
    "comments",
    "conditions",
    "summary",
    "phase",
    "nextStep",
    "completedMilestones",
    "currentPhase",
    "nextCheckpoint",
    "blockers",
    "description",
    "businessImpact",
    "method",
)
"""Names of members that hold free text or a list of it, the most telling first."""
text_characters_max: Final = 1_000
"""Characters that are kept of one Event's words; what stands behind them is not found."""
separator: Final = " · "
"""Between the texts of two members."""

_decode: Final = msgspec.json.Decoder().decode


def free_text(payload: msgspec.Raw) -> str:
    """The words of a payload, each text once, in the order of `text_members`; at most `text_characters_max`."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    waiting: list[Any] = [_decode(payload)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for name in text_members:
                if name in value:
                    found[name] += _texts(value[name])
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value)
    words = dict.fromkeys(text for name in text_members for text in found[name])
    return separator.join(words)[:text_characters_max]


def _texts(member: Any) -> list[str]:
    """A text, or those of a list of texts."""
    members = member if isinstance(member, list) else (member,)
    return [text for text in members if isinstance(text, str)]
