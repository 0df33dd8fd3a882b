"""`weavehold consumer new`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ops.cells import line
from ops.command_fault import CommandFault, UsageFault
from ops.output import JsonOption, print_result
from ops.scaffold.consumer_name import fault_of_name
from ops.scaffold.make_consumer import ConsumerNotMade, Made, make_consumer


def command(
    name: Annotated[str, typer.Argument(help="Lower-case words joined by _, for what its rows are about.")],
    directory: Annotated[
        Path, typer.Option("--directory", help="The checkout of Weavehold to make it in.", file_okay=False)
    ] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Make a consumer that runs at once: its package, its SQL, its test, its entry in projections/listing.py.

    It counts each Group's Events by kind; make something better of its `evolve`. The behaviour suite tests it on both
    stores without another line, and the next projector that starts keeps it. Either all of the files are made or none.
    ops/tutorial/WRITE_A_CONSUMER.md takes you through it in ten minutes.

    \b
    Examples:
      weavehold consumer new late_results
      weavehold consumer new late_results --directory ../weavehold --json
    """
    if (fault := fault_of_name(name)) is not None:
        raise UsageFault(f"a consumer cannot be called {name!r}: {fault}")
    try:
        made = make_consumer(name, directory)
    except ConsumerNotMade as fault:
        raise CommandFault(str(fault)) from fault
    except OSError as fault:
        raise CommandFault(f"{name} was not made in {directory}: {fault}") from fault
    described = {"consumer": made.name, "class": made.class_name, "files": [str(file) for file in made.files]}
    print_result(described, as_json=as_json, people=lambda console: _show(console, made))


def _show(console: Console, made: Made) -> None:
    for file in made.files:
        console.print(line(f"  {file}"))
    suite = "tests/integration/test_consumer_behaviour.py"
    console.print(line(f"Test it:  .venv/bin/pytest tests/unit/test_{made.name}.py {suite} -k {made.name}"))
    console.print(line(f"See it:   .venv/bin/weavehold up, then .venv/bin/weavehold consumer rows {made.name}"))
    console.print(line("Keep it:  .venv/bin/python -m tests.histories.record --digests, once you like its rows"))
