"""`weavehold schema`."""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console

from contracts.documents.json_schema import json_schema, kinds, struct_schema
from contracts.payloads.registry import command_payloads, event_payloads
from ops.cells import line
from ops.command_fault import UsageFault
from ops.output import JsonOption, print_result

near_matches_max: Final = 3
"""Kinds that a message about a wrong one proposes."""
groups: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"documents": kinds, "commandKinds": tuple(command_payloads), "eventKinds": tuple(event_payloads)}
)
"""Every name that has a schema, by what it names; no name stands in two groups."""
_headings: Final = MappingProxyType(
    {"documents": "Documents", "commandKinds": "Payloads of Commands", "eventKinds": "Payloads of Events"}
)


def command(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND]",
            help="Kind of document, Command or Event, such as work-item or mission.create.",
        ),
    ] = None,
    list_kinds: Annotated[bool, typer.Option("--list", help="List the kinds.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the JSON Schema of a kind of document, or of a Command's or Event's payload; or list the kinds.

    The schema (Draft 2020-12) is written from the Structs that read documents: it accepts and refuses what they do.
    `command` and `event` are the envelopes; the kind of a Command or Event gives what stands in its member payload.
    A conversationId or workItemId that a Command's payload requires may stand in the envelope instead.

    \b
    Examples:
      weavehold schema command
      weavehold schema mission.create
      weavehold schema message.posted
      weavehold schema work-item --json > work-item.schema.json
      weavehold schema --list
    """
    if kind is None or list_kinds:
        print_result(dict(groups), as_json=as_json, people=_show_kinds)
        return
    text = msgspec.json.encode(schema_of(kind))
    sys.stdout.write((text if as_json else msgspec.json.format(text, indent=2)).decode() + "\n")


def schema_of(kind: str) -> dict[str, Any]:
    """The schema of any kind in `groups`. Raises UsageFault, which names near ones, for another."""
    if kind in kinds:
        return json_schema(kind)
    if kind in command_payloads:
        return struct_schema(f"Weavehold payload of Command {kind}", command_payloads[kind])
    if kind in event_payloads:
        return struct_schema(f"Weavehold payload of Event {kind}", event_payloads[kind])
    near = _near(kind.lower())
    remedy = f"did you mean {' or '.join(near)}?" if near else "weavehold schema --list shows all"
    raise UsageFault(f"there is no kind {kind[:80]!r}; {remedy}")


def _near(wanted: str) -> list[str]:
    """Kinds that end as asked, for the long names of extensions, then those spelled alike."""
    names = [name for group in groups.values() for name in group]
    ending = [name for name in names if wanted and name.endswith(f".{wanted}")]
    alike = get_close_matches(wanted, names, near_matches_max)
    return list(dict.fromkeys([*ending, *alike]))[:near_matches_max]


def _show_kinds(console: Console) -> None:
    for group, names in groups.items():
        console.print(line(f"{_headings[group]}:"))
        for name in names:
            console.print(line(f"  {name}"))
