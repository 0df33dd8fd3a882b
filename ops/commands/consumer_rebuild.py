"""`weavehold consumer rebuild`."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from contracts.documents.common import ActorType
from contracts.signature import SigningKey
from ops.cells import cell, line
from ops.command_fault import UsageFault
from ops.consumers.find_projection import find_projection
from ops.consumers.rebuild_consumer import Means, RebuildReport, rebuild_consumer
from ops.consumers.rebuild_progress import tell_people
from ops.consumers.steady_history import SteadyHistory
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption, stack_variables
from ops.output import JsonOption, print_result
from ops.running_stack import broker_access, database_access
from projections.proof import SignatureProof
from services.agent.connect import connect as connect_client
from services.agent.keyring import KeyFault, load_key
from services.agent.send_command import RetryPolicy
from services.feed.signed_history import SignedHistory
from services.feed.trust_anchors import read_anchors
from services.feed.trusted_keys import TrustedKeys
from services.process.database import connect
from services.process.settings import Settings, read_settings

read_policy: Final = RetryPolicy(deadline_seconds=8.0)
"""One question to the authority; it is asked again a bounded number of times."""
groups_shown_max: Final = 200
"""Groups in the table for people; --json has all."""


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A consumer, a projection's file, or a Worker.")],
    group: Annotated[list[str] | None, typer.Option(help="Only this Group. May be repeated.")] = None,
    rate: Annotated[float | None, typer.Option(min=1, help="Events per second at most.")] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Rebuild a projection from the signed history beside its live version, then exchange them in one transaction.

    The live version is served and goes on meanwhile; its process notices the exchange by itself. Interrupted at any
    point, either the old rows or the new ones are there; run it again to go on. Progress is told on stderr. It needs
    the authority, the broker, the database (for the list of Groups), and a service's key, the operator's by default.

    \b
    Examples:
      weavehold consumer rebuild mission_board
      weavehold consumer rebuild mission_board --group urn:weavehold:group:website --json
      weavehold consumer rebuild .weavehold/workers/worker-a.sqlite --rate 500
    """
    report = asyncio.run(_rebuild(name, group or [], rate, directory))
    print_result(report, as_json=as_json, people=lambda console: _show(console, report))


async def _rebuild(name: str, group_ids: list[str], rate: float | None, directory: Path) -> RebuildReport:
    place = find_projection(name, directory)
    access, broker = database_access(directory), broker_access(directory)
    variables = stack_variables(directory)
    settings = read_settings(variables, signing_key="operator", uses_database=False)
    key, anchors = _service_key(settings), read_anchors(settings, variables)
    async with AsyncExitStack() as stack:
        database = await connect(access.url, name="weavehold-consumer")
        stack.push_async_callback(database.close)
        client = await stack.enter_async_context(
            connect_client(broker.url, broker.organization_id, key, credentials=broker.credentials, policy=read_policy)
        )
        keys = TrustedKeys(client.history, anchors)
        await keys.follow(client.connection)
        means = Means(
            SteadyHistory(SignedHistory(client.history), rate),
            SignatureProof(keys),
            database,
            access.organization_id,
            tell_people(name),
        )
        return await rebuild_consumer(place, group_ids, means)


def _service_key(settings: Settings) -> SigningKey:
    """The key to ask with. Raises UsageFault for one that cannot be used, or is no service's."""
    remedy = "Name a service's key in WEAVEHOLD_SIGNING_KEY_FILE, such as the operator's"
    try:
        key = load_key(settings.signing_key_file)
    except KeyFault as fault:
        raise UsageFault(f"{settings.signing_key_file} cannot be used: {fault}. {remedy}") from fault
    if key.principal.type is not ActorType.SERVICE:
        raise UsageFault(f"{settings.signing_key_file} is the key of {key.principal.id}, which is no service. {remedy}")
    return key


def _show(console: Console, report: RebuildReport) -> None:
    told = {True: "equal", False: "different", None: "elsewhere"}
    table = Table("Group", "sequence", "live was", "its rows were", "digest")
    for each in report.groups[:groups_shown_max]:
        values = (each.group_id, each.sequence, each.live.value, told[each.equal], each.digest)
        table.add_row(*(cell(value) for value in values))
    console.print(table)
    counts = Counter(told[each.equal] for each in report.groups)
    summary = ", ".join(f"{count} {words}" for words, count in counts.items())
    console.print(
        line(f"{report.name}: {len(report.groups)} Groups exchanged ({summary}), {report.events} Events replayed")
    )
    for group_id in report.stopped:
        console.print(line(f"{group_id} stands still before an Event that this version cannot read"))
