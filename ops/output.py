"""What a command prints: one JSON object on stdout with `--json`, otherwise text and tables for people (OPS-2)."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console

from ops.cells import line

lone_surrogates: Final = re.compile("[\ud800-\udfff]")
"""What no UTF-8 can carry: halves of characters in JSON of others, and bytes of names that are not UTF-8."""
piped_columns: Final = 400
"""Columns of a table that nobody looks at directly."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
"""The option that every command has."""


def print_result(
    value: Mapping[str, Any] | msgspec.Struct, *, as_json: bool, people: Callable[[Console], None]
) -> None:
    """Print the result of a command: `value` as JSON, or what `people` prints on the console."""
    if as_json:
        print_object(value)
    else:
        # A pipe has no width: identifiers stay whole there, to be searched and copied.
        people(Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else piped_columns))


def print_fault(fault: Exception, *, as_json: bool) -> None:
    """Print why a command ended: on stderr for people, and as `{"fault": …}` on stdout with `--json`."""
    for text in str(fault).splitlines() or [""]:
        # What is quoted here may come from outside: it is shown, never obeyed by a terminal.
        sys.stderr.write(f"weavehold: {line(text)}\n")
    if as_json:
        print_object({"fault": str(fault)})


def print_object(value: Mapping[str, Any] | msgspec.Struct) -> None:
    """Write one JSON object on stdout, in one line; a lone surrogate in it becomes U+FFFD, as people are shown it."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        text = lone_surrogates.sub("\ufffd", json.dumps(msgspec.to_builtins(value), ensure_ascii=False))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
