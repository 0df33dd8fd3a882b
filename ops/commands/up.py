"""`weavehold up`."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.embedded.services import standard_services, worker
from ops.embedded.supervisor import HistoryInDoubt, StackOptions, Supervisor
from ops.embedded.unit import ServiceUnit
from ops.output import JsonOption, print_result
from services.process.logs import configure_logs
from services.process.settings import Environment, log_levels, redact_url


def _described(stack: Supervisor) -> dict[str, Any]:
    return {
        "organizationId": stack.organization.organization_id,
        "databaseUrl": redact_url(stack.database_url),
        "natsUrl": redact_url(stack.nats_url),
        "directory": str(stack.directory.path),
        "processes": [
            {"name": name, "pid": stack.pid(name)}
            | ({"healthPort": unit.health_port} if isinstance(unit, ServiceUnit) else {})
            for name in stack.unit_names
            for unit in [stack.unit(name)]
        ],
    }


def _show(stack: Supervisor, console: Console) -> None:
    table = Table("process", "PID", "health port", title=stack.organization.organization_id)
    for name in stack.unit_names:
        unit = stack.unit(name)
        table.add_row(name, str(unit.pid), str(unit.health_port) if isinstance(unit, ServiceUnit) else "")
    console.print(table)
    console.print(f"database {redact_url(stack.database_url)}")
    console.print(f"broker   {redact_url(stack.nats_url)}")
    console.print(f"logs     {stack.directory.logs}")
    console.print("Ctrl-C stops all of it.")


async def _run(stack: Supervisor, as_json: bool) -> None:
    """Run until SIGTERM or SIGINT, also when one comes during the start."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    serving = asyncio.create_task(_serve(stack, as_json, stopping))
    asked = asyncio.create_task(stopping.wait())
    await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not stack.started.is_set():
        serving.cancel()
    await asyncio.gather(serving, return_exceptions=stopping.is_set())


async def _serve(stack: Supervisor, as_json: bool, stopping: asyncio.Event) -> None:
    try:
        await stack.start()
        try:
            await stack.wait_healthy()
        except HistoryInDoubt as doubt:
            # A stack that ended here could not be told how to go on.
            typer.echo(f"weavehold: {doubt}", err=True)
        print_result(_described(stack), as_json=as_json, people=lambda console: _show(stack, console))
        await stopping.wait()
    finally:
        await stack.stop()


def command(
    name: Annotated[
        str | None,
        typer.Option(help="Name of the Organization, made when it is missing; by default the one there is, or local."),
    ] = None,
    shards: Annotated[int | None, typer.Option(help="Shards of a new Organization.")] = None,
    authorities: Annotated[int, typer.Option(min=0, max=16, help="Authority processes.")] = 1,
    relays: Annotated[int, typer.Option(min=0, max=16, help="Relay processes.")] = 1,
    projector: Annotated[
        bool | None,
        typer.Option(
            "--projector/--no-projector", help="The projections' process; by default beside authority and relay."
        ),
    ] = None,
    workers: Annotated[
        list[Path] | None,
        typer.Option("--worker", exists=True, dir_okay=False, help="Key file of an Agent to run a Worker for."),
    ] = None,
    nats_port: Annotated[int | None, typer.Option(min=1, max=65535, help="A fixed port for NATS.")] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Run PostgreSQL, NATS, authorities, relays, projector and Workers here until Ctrl-C; restart whatever dies.

    Makes the schema and the Organization when they are missing. Ports, token, keys and data stay in the directory. With
    WEAVEHOLD_DATABASE_URL or WEAVEHOLD_NATS_URL those servers are used instead of embedded ones. With --json the
    object is printed once everything is ready.

    \b
    Examples:
      weavehold up
      weavehold up --authorities 2 --relays 2 --directory /var/lib/weavehold
      weavehold up --worker agents/reader.json --worker agents/writer.json
      WEAVEHOLD_DATABASE_URL=postgresql://app@db/weavehold WEAVEHOLD_NATS_URL=nats://nats:4222 weavehold up
    """
    configure_logs("up", Environment().choice("WEAVEHOLD_LOG_LEVEL", log_levels, "warning"))
    options = StackOptions(organization_name=name, shard_count=shards, nats_port=nats_port)
    services = standard_services(authorities=authorities, relays=relays, with_projector=projector)
    services += [worker(key_file) for key_file in workers or ()]
    stack = Supervisor(directory, services, options)
    asyncio.run(_run(stack, as_json))
