"""What a consumer may be called, and its class after it."""

import keyword
import re
from typing import Final

from projections.store.postgres import schema_characters_max

name_characters_max: Final = schema_characters_max - len("projection__") - 12
"""Characters of a name: its schema in PostgreSQL has a prefix and 12 digits beside it."""

_words: Final = re.compile(r"[a-z]+(?:_[a-z]+)*")
_telling_nothing: Final = frozenset(
    {"base", "common", "helper", "helpers", "manager", "managers", "misc", "stuff", "tools", "util", "utils"}
)
_taken_classes: Final = frozenset(
    {"Consumer", "Counter", "Final", "Iterable", "LoggedEvent", "Mapping", "Path", "SqliteStore", "Statement"}
)
"""What the generated files import."""


def fault_of_name(name: str) -> str | None:
    """Why a consumer cannot be called so, or None."""
    if not _words.fullmatch(name):
        return "a name is lower-case words joined by _, such as late_results"
    if len(name) > name_characters_max:
        return f"it has {len(name)} characters, at most {name_characters_max} fit into the name of a schema"
    if keyword.iskeyword(name) or name in _telling_nothing or class_name_of(name) in _taken_classes:
        return "the word is taken or tells nothing; name what its rows are about"
    if name.startswith("projection_"):
        return "the stores' own tables are called projection_…"
    return None


def class_name_of(name: str) -> str:
    """The consumer's class: `LateResults` for `late_results`."""
    return "".join(word.capitalize() for word in name.split("_"))
