"""The command line `weavehold`. One module per command under `ops/commands`, named in `commands` below.

A command module has a function `command` (or a `typer.Typer` named `app` when it has subcommands of its own) and is
imported only when it is asked for. Exit codes: 0 done or nothing found, 1 a finding, refusal or fault, 2 wrong usage or
settings. With `--json` exactly one JSON object goes to stdout, the fault if there is one; logs always go to stderr
(OPS-2).
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import typer
from typer._click.exceptions import ClickException
from typer.core import TyperGroup

from ops.command_fault import CommandFault, UsageFault
from ops.output import print_fault, print_object
from services.process.logs import configure_logs
from services.process.settings import Environment, SettingsFault, log_levels

commands: Final = {
    "init": "Create the Organization with its shards and first keys",
    "migrate": "Bring the database's schema up to date",
    "up": "Run PostgreSQL, NATS and the services on this machine",
    "demo": "Run Missions while parts are killed, then verify",
    "authority": "Run one authority process",
    "relay": "Run one relay process",
    "worker": "Run one Worker process",
    "projector": "Run the process that keeps the server's projections",
    "send": "Send one Command and print its Receipt",
    "group": "Look at one Group: its state, its Events",
    "board": "Show every Mission as it was projected",
    "audit": "Search all Events by actor, kind, time and words",
    "usage": "Show budgets, what is reserved of them, and what came of the work",
    "cursor": "Show how far everyone is in every Group",
    "consumer": "Make, list, verify and rebuild projections",
    "quarantine": "See Groups that stand before an Event, try again, or skip it",
    "db": "See what each process may do in the database, make logins",
    "nats": "Provision the broker: accounts, keys, permissions, TLS",
    "incarnation": "After a restore or failover: see, and decide how history goes on",
    "keys": "Register, rotate, revoke, look at and audit keys",
    "verify": "Prove that log, Receipts, stream, state and projections agree",
    "conformance": "Run the protocol's test vectors",
    "schema": "Print the JSON Schema of a kind of document",
    "bench": "Measure, each figure as a ratio to a bare baseline",
}
"""Every command with its summary, in the order of the help."""


class _Commands(TyperGroup):
    """Finds a command by its name without importing the others."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """All names, in the order of the list."""
        return list(commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Import one command; None for an unknown name."""
        if cmd_name not in commands:
            return None
        summary = commands[cmd_name]
        module = import_module(f"ops.commands.{cmd_name.replace('-', '_')}")
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(name=cmd_name, short_help=summary)(module.command)
        found = typer.main.get_command(app)
        found.name, found.short_help = cmd_name, summary
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Show the list without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(commands.items()))


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Weavehold keeps what a fleet of AI agents has agreed.\n\nEvery command has --help with examples, and --json "
    "except the services (authority, relay, worker, projector), which log JSON lines.",
)


@app.callback()
def _root() -> None:
    """Take no options before the command."""


def main() -> None:
    """Run the command line and exit with its code."""
    as_json = "--json" in sys.argv
    try:
        _require_utf8(sys.argv[1:])
        # Services set their own level; whatever else a command touches must not write to its stdout.
        configure_logs("cli", Environment().choice("WEAVEHOLD_LOG_LEVEL", log_levels, "error"))
        code = app(prog_name="weavehold", standalone_mode=False)
    except ClickException as fault:
        fault.show()
        if as_json:
            print_object({"fault": fault.format_message()})
        code = fault.exit_code
    except typer.Abort:
        print_fault(CommandFault("aborted"), as_json=as_json)
        code = 1
    except (CommandFault, SettingsFault) as fault:
        print_fault(fault, as_json=as_json)
        code = fault.exit_code if isinstance(fault, CommandFault) else 2
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        # Imported here: most commands end well, and some need neither database nor broker.
        found = import_module("ops.server_fault").server_fault(error)
        if found is None:
            if as_json:
                print_object({"fault": f"unexpected {type(error).__name__}: {error}"})
            raise
        print_fault(found, as_json=as_json)
        code = found.exit_code
    sys.exit(code)


def _require_utf8(arguments: Sequence[str]) -> None:
    """Raise UsageFault for the first argument that is not UTF-8: nothing that we keep or send could carry it."""
    for position, argument in enumerate(arguments, start=1):
        try:
            argument.encode()
        except UnicodeEncodeError as fault:
            raise UsageFault(
                f"argument {position} is not UTF-8: {os.fsencode(argument)!r}. Write it in UTF-8"
            ) from fault


if __name__ == "__main__":
    main()
