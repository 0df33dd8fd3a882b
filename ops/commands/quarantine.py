"""`weavehold quarantine list|show|retry|release|skip`."""

import asyncio
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from contracts.timestamps import format_timestamp
from ops.cells import cell, line
from ops.command_fault import CommandFault, UsageFault
from ops.consumers.find_projection import find_projection
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.output import JsonOption, print_result
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, command_name, open_place, projection_places
from ops.quarantine.decide_quarantine import decide_in
from ops.quarantine.list_quarantine import QuarantineLine, QuarantineReport, Standing, list_quarantine, quarantine_line
from ops.quarantine.show_quarantine import GroupQuarantine, show_quarantine
from ops.running_stack import database_access
from ops.who_and_why import who_and_why
from projections.decide_quarantine import Asked, Decided, decide_group, decide_groups, groups_at_once_max
from projections.store import Verb
from services.process.database import connect

groups_shown_default: Final = 100
groups_shown_max: Final = 10_000
"""Groups that one call lists."""
reason_example: Final = "ada: fixed in 1.4.2, which runs since 09:00"

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The ID of a Group.")]
ProjectionOption = Annotated[
    list[str] | None,
    typer.Option("--projection", help="Only this one: a consumer, a Worker, or a SQLite file. May be repeated."),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="WHO: WHY", help="Who decides, and why; on record.")]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="""Groups that stand before an Event which a consumer cannot apply: see why, try again, or pass the Event over.

    \b
    Examples:
      weavehold quarantine list
      weavehold quarantine show urn:weavehold:group:website
    """,
)


class Outcome(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was decided: Groups as they were found, those that were left and why, and how many more were."""

    verb: Verb
    decided: tuple[QuarantineLine, ...]
    refused: tuple[str, ...]
    left: int


@app.callback()
def _root() -> None:
    """Take no options before the subcommand."""


@app.command("list")
def list_command(
    projection: ProjectionOption = None,
    group: Annotated[list[str] | None, typer.Option(help="Only this Group. May be repeated.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=groups_shown_max, help="Groups at most.")] = groups_shown_default,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """List the quarantined Groups of all projections: before which Event, since when, why, and who answers for it.

    A consumer that cannot apply an Event stands before it in that Group alone; its other Groups, and other consumers,
    go on. The next process of the consumer tries it once more. Exits with 1 while a Group is quarantined.

    \b
    Examples:
      weavehold quarantine list
      weavehold quarantine list --projection mission_board --json
    """
    report = list_quarantine(_places(projection or (), directory), group or (), limit)
    print_result(report, as_json=as_json, people=lambda console: _show_list(console, report))
    if not report.is_clear:
        raise typer.Exit(1)


@app.command()
def show(
    group: GroupArgument,
    projection: ProjectionOption = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Show why a Group is quarantined, and every decision about it: who, when, why, and what a skip does by now.

    A skip whose Event is not in the history any more, since the authority was restored, is inert. Exits with 1 while
    the Group is quarantined.

    \b
    Examples:
      weavehold quarantine show urn:weavehold:group:website
      weavehold quarantine show urn:weavehold:group:website --projection mission_board --json
    """
    shown = asyncio.run(_read(group, _places(projection or (), directory), directory))
    print_result(shown, as_json=as_json, people=lambda console: _show_group(console, shown))
    if shown.quarantined or shown.unreadable:
        raise typer.Exit(1)


@app.command()
def retry(
    group: GroupArgument,
    reason: ReasonOption,
    projection: ProjectionOption = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Try a Group again from its Event on. At most 10 attempts in one version, once in 10 s.

    The consumer's process notices it within a second, or when it is started.

    \b
    Examples:
      weavehold quarantine retry urn:weavehold:group:website --reason "ada: the disk has room again"
    """
    _decide_one(Verb.RETRY, group, None, reason, projection or (), directory, as_json=as_json)


@app.command()
def release(
    reason: ReasonOption,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="The ID of a Group; or give --all.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All Groups that stand.")] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=groups_at_once_max, help="With --all: Groups of one projection at most.")
    ] = groups_shown_default,
    projection: ProjectionOption = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Say that the cause is gone: the Group goes on, and its attempts are counted anew. At most 10 times per Event.

    With --all every Group that stands, a bounded number in one call; exits with 1 when some had to be left.

    \b
    Examples:
      weavehold quarantine release urn:weavehold:group:website --reason "ada: fixed in 1.4.2, which runs since 09:00"
      weavehold quarantine release --all --projection mission_board --reason "ada: fixed in 1.4.2" --limit 500
    """
    if (group is None) is not everything:
        raise UsageFault("give either a GROUP or --all")
    if group is not None:
        _decide_one(Verb.RELEASE, group, None, reason, projection or (), directory, as_json=as_json)
        return
    asked = _asked(Verb.RELEASE, reason)
    outcome = _decide_all(asked, _places(projection or (), directory), limit)
    print_result(outcome, as_json=as_json, people=lambda console: _show_outcome(console, outcome))
    if outcome.refused or outcome.left:
        raise typer.Exit(1)


@app.command()
def skip(
    group: GroupArgument,
    event: Annotated[
        str, typer.Option(metavar="ID", help="The Event to pass over, as `show` tells it: its ID or its sequence.")
    ],
    reason: ReasonOption,
    projection: ProjectionOption = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Pass one Event over in one projection, for good: nothing is made of it there, and the Group goes on behind it.

    The Event stays in the history; rebuilds and verifications pass it over as well. It is named, so that no other one
    than you have looked at is skipped. What later Events build on it may fail in turn: mend the consumer if you can.

    \b
    Examples:
      weavehold quarantine skip urn:weavehold:group:website --event 42 --reason "ada: a title of 3 MB, agreed with bo"
      weavehold quarantine skip urn:weavehold:group:website --event urn:uuid:0198... --projection audit_trail \\
        --reason "ada: not to be indexed"
    """
    _decide_one(Verb.SKIP, group, event, reason, projection or (), directory, as_json=as_json)


def _places(projections: Sequence[str], directory: Path) -> list[ProjectionPlace]:
    """The places that are named, each once however often and however it is called; all of them when none is."""
    named: dict[ProjectionPlace, ProjectionPlace] = {}
    for called in projections:
        place = find_projection(called, directory)
        named.setdefault(place.resolve() if isinstance(place, Path) else place, place)
    try:
        places = [*named.values()] or projection_places(directory)
    except NotAProjection as fault:
        raise CommandFault(str(fault)) from fault
    if not places:
        raise UsageFault(
            f"{directory} holds no projections: name the stack's directory with --directory or WEAVEHOLD_DIRECTORY, "
            "or start the projector once"
        )
    return places


async def _read(group_id: str, places: Sequence[ProjectionPlace], directory: Path) -> GroupQuarantine:
    access = database_access(directory)
    connection = await connect(access.url, name="weavehold-quarantine")
    try:
        return await show_quarantine(connection, access.organization_id, places, group_id)
    finally:
        await connection.close()


def _asked(verb: Verb, reason: str) -> Asked:
    """Raises UsageFault."""
    who, why = who_and_why("--reason", reason, reason_example)
    return Asked(verb, who, why, format_timestamp(datetime.now(UTC)))


def _decide_one(
    verb: Verb,
    group_id: str,
    event: str | None,
    reason: str,
    projections: Sequence[str],
    directory: Path,
    *,
    as_json: bool,
) -> None:
    """Decide on one Group in the one projection where it is quarantined. Raises UsageFault, CommandFault."""
    asked = _asked(verb, reason)
    places = _places(projections, directory)
    found = list_quarantine(places, (group_id,), groups_shown_max)
    quarantining = [place for place in places if any(each.projection == str(place) for each in found.quarantined)]
    if len(quarantining) > 1:
        names = ", ".join(str(place) for place in quarantining)
        raise UsageFault(
            f"{group_id} is quarantined in {len(quarantining)} projections: name one with --projection ({names})"
        )
    if not quarantining:
        unread = "; ".join(each.problem for each in found.unreadable)
        raise CommandFault(
            f"no projection has {group_id} quarantined{f' ({unread})' if unread else ''}; `weavehold quarantine list` "
            "shows which Groups are"
        )
    [place], [seen] = quarantining, found.quarantined
    decided = decide_in(place, partial(decide_group, asked=asked, group_id=group_id, event=event))
    told = quarantine_line(place, seen.consumer, decided)
    outcome = Outcome(verb=verb, decided=(told,), refused=(), left=0)
    print_result(outcome, as_json=as_json, people=lambda console: _show_outcome(console, outcome))


def _decide_all(asked: Asked, places: Sequence[ProjectionPlace], limit: int) -> Outcome:
    """Decide on the Groups that stand, projection after projection; what one refuses stops no other one."""
    lines: list[QuarantineLine] = []
    refused: list[str] = []
    left = 0
    for place in places:
        try:
            with open_place(place) as opened:
                name, stops = opened.consumer.name, opened.snapshot.stops()
            if not stops:
                continue
            decided: Decided = decide_in(place, partial(decide_groups, asked=asked, limit=limit))
        except NotAProjection as fault:
            refused.append(f"{place}: {fault}")
            continue
        except CommandFault as fault:
            refused.append(str(fault))
            continue
        lines += [quarantine_line(place, name, each) for each in decided.done]
        refused += [f"{place}: {why}" for _, why in decided.refused]
        left += decided.left
    return Outcome(verb=asked.verb, decided=tuple(lines), refused=tuple(refused), left=left)


def _show_list(console: Console, report: QuarantineReport) -> None:
    if report.quarantined:
        console.print(_table(report.quarantined))
        for each in report.quarantined:
            console.print(line(f"{each.consumer}, {each.group_id} at {each.sequence}: {each.reason}"))
        first = shlex.quote(report.quarantined[0].group_id)
        console.print(line(f"more of one, and what can be done: weavehold quarantine show {first}"))
    else:
        console.print(line("no Group is quarantined"))
    if report.more:
        console.print(line(f"{report.more} more are quarantined: give a higher --limit, or a --projection"))
    for unread in report.unreadable:
        console.print(line(f"{unread.projection}: {unread.problem}"))


def _table(lines: Sequence[QuarantineLine]) -> Table:
    table = Table("consumer", "owner", "Group", "at", "Event", "kind", "first failed", "attempts", "state")
    for each in lines:
        consumer = f"{each.consumer} {each.version}"
        place = (each.group_id, each.sequence, each.event_id, each.kind)
        values = (consumer, each.owner, *place, each.first_failed_at, each.attempts, each.standing.value)
        table.add_row(*(cell(value) for value in values))
    return table


def _show_group(console: Console, shown: GroupQuarantine) -> None:
    if shown.quarantined:
        console.print(_table(shown.quarantined))
    else:
        console.print(line(f"{shown.group_id} is not quarantined"))
    for each in shown.quarantined:
        times = "once" if each.attempts == 1 else f"{each.attempts} times"
        failed = f"failed {times} since {each.first_failed_at}, last at {each.last_failed_at}"
        console.print(line(f"{each.consumer}: {each.reason} ({failed}; chain hash {each.chain_hash})"))
    if shown.decisions:
        table = Table("at", "consumer", "decision", "Event", "who", "why", "effect", title="Decisions")
        for told in shown.decisions:
            event = f"{told.sequence} {told.event_id}"
            effect = told.effect.value if told.effect else None
            values = (told.at, f"{told.consumer} {told.version}", told.verb.value, event, told.who, told.why, effect)
            table.add_row(*(cell(value) for value in values))
        console.print(table)
    for each in shown.quarantined:
        _show_remedies(console, each)
    for unread in shown.unreadable:
        console.print(line(f"{unread.projection}: {unread.problem}"))


def _show_remedies(console: Console, found: QuarantineLine) -> None:
    """What can be done about a Group, as commands to copy."""
    called = command_name(found.consumer, found.projection)
    if found.standing is Standing.TRIED:
        console.print(line(f"{called}: it is being tried; look again in a moment, and see that its process runs"))
        return
    group, where = shlex.quote(found.group_id), f'--projection {shlex.quote(called)} --reason "WHO: WHY"'
    tries = "" if found.standing is Standing.EXHAUSTED else " and tries again; if the Group stands even so"
    console.print(line(f"{called}: mend the consumer and restart its process, which loads the new code{tries}:"))
    console.print(line(f"  weavehold quarantine release {group} {where}"))
    if found.standing is Standing.STANDS:
        console.print(line("or, when the cause was elsewhere, try once more:"))
        console.print(line(f"  weavehold quarantine retry {group} {where}"))
    console.print(line("or pass this one Event over, for good:"))
    console.print(line(f"  weavehold quarantine skip {group} --event {found.sequence} {where}"))


def _show_outcome(console: Console, outcome: Outcome) -> None:
    done = {Verb.RETRY: "is tried again", Verb.RELEASE: "is released", Verb.SKIP: "passes over"}[outcome.verb]
    for each in outcome.decided:
        event = f" {each.event_id}" if outcome.verb is Verb.SKIP else ""
        console.print(line(f"{each.consumer}: {each.group_id} {done}{event} at {each.sequence}"))
    for refusal in outcome.refused:
        console.print(line(refusal))
    if outcome.left:
        console.print(line(f"{outcome.left} more Groups stand: run it again, or give a higher --limit"))
    if outcome.decided:
        groups = {each.group_id for each in outcome.decided}
        look = f"show {shlex.quote(groups.pop())}" if len(groups) == 1 else "list"
        console.print(line(f"a running process notices within a second: weavehold quarantine {look}"))
    elif not outcome.refused:
        console.print(line("no Group stands"))
