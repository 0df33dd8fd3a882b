"""`weavehold audit search`."""

from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import Struct
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from contracts.identifiers import is_identifier
from ops.cells import cell, line
from ops.command_fault import UsageFault
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.look_at_projection import StoppedGroup, look_at_projection
from ops.moment import moment_called
from ops.output import JsonOption, print_result
from projections.audit_trail.consumer import AuditTrail
from projections.audit_trail.search_trail import (
    TrailEvent,
    TrailPlace,
    TrailQuestion,
    events_in_page_max,
    search_trail,
    trail_start,
)

events_shown_default: Final = 100
text_characters_max: Final = 200
"""Characters that may be looked for."""

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Search what happened, in all Groups."
)


class AuditReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """One page in the order of time; `next` is the following --after, null at the end."""

    organization_id: str
    events: tuple[TrailEvent, ...]
    next: str | None
    stopped: tuple[StoppedGroup, ...]


@app.callback()
def _root() -> None:
    """Take no options before the subcommand."""


@app.command()
def search(
    text: Annotated[str, typer.Option(help="A part of titles, Messages, reasons and other words of the payload.")] = "",
    actor: Annotated[str, typer.Option(metavar="ID", help="Only what this Agent, person or service did.")] = "",
    kind: Annotated[str, typer.Option(help="Only this kind of Event; * stands for anything, as in work.*")] = "*",
    group: Annotated[str, typer.Option(metavar="ID", help="Only this Group.")] = "",
    work_item: Annotated[str, typer.Option(metavar="ID", help="Only what names this WorkItem in its envelope.")] = "",
    since: Annotated[
        str | None, typer.Option(metavar="TIME|SPAN", help="From then on: RFC 3339, or such as 15m, 2h, 7d.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME|SPAN", help="Up to, not including, then.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=events_in_page_max, help="Events at most.")] = events_shown_default,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where an earlier search said that more follows.")
    ] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Search the Events of all Groups, oldest first: who did what, when, why, to which WorkItem.

    Reads the projection audit_trail where the projector keeps it (`weavehold board --help`), so it shows what was
    projected last; neither authority nor broker is asked. --text looks into the first thousand characters of an
    Event's words and takes no notice of the case of ASCII letters. `weavehold group events` shows whole payloads.

    \b
    Examples:
      weavehold audit search --since 2h
      weavehold audit search --actor urn:weavehold:agent:ada --kind 'work.*'
      weavehold audit search --text invoice --group urn:weavehold:group:website --json
      weavehold audit search --limit 1000 --after "$(weavehold audit search --limit 1000 --json | jq -r .next)"
    """
    question = TrailQuestion(
        text=_short("--text", text),
        actor_id=_identifier("--actor", actor),
        kind=_short("--kind", kind),
        group_id=_identifier("--group", group),
        work_item_id=_identifier("--work-item", work_item),
        since="" if since is None else moment_called("--since", since),
        until="" if until is None else moment_called("--until", until),
    )
    report = _search(directory, question, _place(after), limit)
    print_result(report, as_json=as_json, people=lambda console: _show(console, report))


def _search(directory: Path, question: TrailQuestion, after: TrailPlace, limit: int) -> AuditReport:
    looked = look_at_projection(
        AuditTrail(),
        directory,
        question.group_id or None,
        lambda snapshot: search_trail(snapshot, question, after, limit),
    )
    page = looked.seen
    return AuditReport(
        organization_id=looked.organization_id,
        events=page.events,
        next=None if page.next is None else str(page.next),
        stopped=looked.stopped,
    )


def _short(option: str, text: str) -> str:
    if len(text) > text_characters_max:
        raise UsageFault(f"{option} has {len(text)} characters; give at most {text_characters_max}")
    return text


def _identifier(option: str, text: str) -> str:
    if text and not is_identifier(text):
        raise UsageFault(f"{option} is {text!r}; give a whole identifier such as urn:weavehold:agent:ada")
    return text


def _place(text: str | None) -> TrailPlace:
    if text is None:
        return trail_start
    try:
        return TrailPlace.read(text)
    except ValueError as fault:
        raise UsageFault(f"--after is {text!r}; give what an earlier search printed after --after") from fault


def _show(console: Console, report: AuditReport) -> None:
    # Identifiers are folded, not cut: one wants to copy them.
    headers = ("when", "kind and words", "who", "where", "because of")
    table = Table(*(Column(header, overflow="fold") for header in headers), show_lines=True)
    for event in report.events:
        table.add_row(
            cell(event.occurred_at),
            _lines(event.kind, event.words or None),
            cell(event.actor_id),
            _lines(f"{event.group_id} {event.sequence}", event.work_item_id, event.event_id),
            cell(f"{event.cause_type} {event.cause_id}"),
        )
    console.print(table)
    if report.next is not None:
        console.print(line(f"more follows: --after {report.next}"))
    for stop in report.stopped:
        console.print(line(f"{stop.group_id} stands before Event {stop.sequence}: {stop.reason}"))


def _lines(*values: object) -> Text:
    """Several values one below the other in one cell; None is left out."""
    return Text("\n").join(cell(value) for value in values if value is not None)
