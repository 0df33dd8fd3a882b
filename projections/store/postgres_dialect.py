"""The one wording of each statement, as PostgreSQL takes it.

Statements are written in what SQLite and PostgreSQL have in common, with parameters as `:name`. Only a few words of a
table's creation differ. Texts compare as bytes, as in SQLite, whatever the database's own order is.
"""

import re
from collections.abc import Mapping
from typing import Final

_tokens: Final = re.compile(r"(?P<comment>--[^\n]*\n?)|'[^']*'|::|:(?P<name>\w+)")
_types: Final[Mapping[str, str]] = {"TEXT": 'TEXT COLLATE "C"', "BLOB": "BYTEA", "WITHOUT ROWID": ""}
_type_words: Final = re.compile("|".join(rf"\b{words}\b" for words in _types))


def as_postgres(sql: str) -> str:
    """A statement for psycopg: `%(name)s` for its parameters, and PostgreSQL's types where it creates a table."""
    text = _tokens.sub(_token, sql.replace("%", "%%")).strip()
    if text.startswith("CREATE"):
        text = _type_words.sub(lambda found: _types[found.group()], text)
    return text


def _token(found: re.Match[str]) -> str:
    if found["name"]:
        return f"%({found['name']})s"
    return "" if found["comment"] else found.group()
