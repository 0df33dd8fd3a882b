"""`weavehold bench`."""

import asyncio
import sys
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from ops.bench.measurement import Measurement
from ops.bench.run import UnknownBenchmark, benchmarks, run_benchmarks
from ops.cells import cell
from ops.command_fault import UsageFault
from ops.output import JsonOption, print_result


def command(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Which: {', '.join(benchmarks)}. All without a name.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure, each figure as a median ratio to a baseline interleaved with it on this machine.

    A benchmark that needs servers starts its own PostgreSQL (fsync and synchronous commit on) and broker in a
    temporary directory.

    \b
    Examples:
      weavehold bench
      weavehold bench accept-many-groups relay --json
      weavehold bench verify-command canonicalize
    """
    try:
        results = asyncio.run(run_benchmarks(names or [], _progress))
    except UnknownBenchmark as fault:
        raise UsageFault(str(fault)) from fault
    value = {"benchmarks": [msgspec.to_builtins(result) for result in results]}
    print_result(value, as_json=as_json, people=lambda console: _show(console, results))


def _progress(name: str) -> None:
    sys.stderr.write(f"measuring {name}\n")


def _show(console: Console, results: list[Measurement]) -> None:
    table = Table("benchmark", "value", "baseline", "unit", "ratio", "target", "met")
    for r in results:
        target = f"{'≥' if r.better == 'higher' else '≤'} {r.target}"
        values = (r.name, r.value, r.baseline, r.unit, r.ratio, target, "yes" if r.met else "no")
        table.add_row(*(cell(value) for value in values))
    console.print(table)
