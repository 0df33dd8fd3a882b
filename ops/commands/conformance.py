"""`weavehold conformance`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ops.cells import cell, line
from ops.conformance.run import Report, run_bundles
from ops.output import JsonOption, print_result


def command(
    bundle: Annotated[
        Path, typer.Option(help="Folder with schemas/, conformance/, cryptography/ and admission/ of the protocol.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Run the protocol's structural, cryptography and admission vectors; exit 1 unless all of them pass.

    Needs no database and no broker.

    \b
    Examples:
      weavehold conformance --bundle ./protocol
      weavehold conformance --bundle ./protocol --json
    """
    report = run_bundles(bundle)
    print_result(report, as_json=as_json, people=lambda console: _show(console, report))
    if not report.ok:
        raise typer.Exit(1)


def _show(console: Console, report: Report) -> None:
    table = Table("bundle", "passed", "failed")
    for name, tally in report.tallies():
        table.add_row(cell(name), cell(tally.passed), cell(tally.failed))
    console.print(table)
    for name, tally in report.tallies():
        for failure in tally.failures:
            place = f"{name}: {failure.case}: {failure.evaluation}"
            console.print(line(f"{place}: expected {failure.expected}; observed {failure.observed}"))
    console.print(cell("everything passes" if report.ok else "not everything passes"))
