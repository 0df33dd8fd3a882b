"""`weavehold schema`."""

import sys
from difflib import get_close_matches
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from contracts.documents.json_schema import json_schema, kinds
from ops.cells import line
from ops.command_fault import UsageFault
from ops.output import JsonOption, print_result

near_matches_max: Final = 3
"""Kinds that a message about a wrong one proposes."""


def command(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="Kind of document, such as command or work-item.")
    ] = None,
    list_kinds: Annotated[bool, typer.Option("--list", help="List the kinds.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the JSON Schema of a kind of document, or list the kinds.

    The schema (Draft 2020-12) is written from the Structs that read documents: it accepts and refuses what they do.

    \b
    Examples:
      weavehold schema command
      weavehold schema work-item --json > work-item.schema.json
      weavehold schema --list
    """
    if kind is None or list_kinds:
        print_result({"kinds": kinds}, as_json=as_json, people=_show_kinds)
        return
    if kind not in kinds:
        near = get_close_matches(kind.lower(), kinds, near_matches_max)
        remedy = f"did you mean {' or '.join(near)}?" if near else "weavehold schema --list shows all"
        raise UsageFault(f"there is no kind {kind[:80]!r}; {remedy}")
    text = msgspec.json.encode(json_schema(kind))
    sys.stdout.write((text if as_json else msgspec.json.format(text, indent=2)).decode() + "\n")


def _show_kinds(console: Console) -> None:
    for kind in kinds:
        console.print(line(kind))
