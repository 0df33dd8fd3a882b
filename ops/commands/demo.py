"""`weavehold demo`."""

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from ops.command_fault import UsageFault
from ops.demo.demo_report import DemoReport, show_report
from ops.demo.mission_fault import MissionFileFault
from ops.demo.mission_file import load_mission_file
from ops.demo.mission_tables import MissionFile
from ops.demo.run_demo import run_demo
from ops.demo.show_progress import Progress
from ops.output import JsonOption, print_result
from services.process.logs import configure_logs
from services.process.settings import Environment, log_levels

files_max: Final = 16
"""Mission files of one demo."""


def command(
    mission_files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILES]...", help="Mission files; the two shipped ones without any.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stack's directory: database, logs, results.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run Missions on a stack of their own while its processes are killed, then verify that nothing was lost.

    A Worker, the relay, the authority and the broker are killed with -9 on the way, and the broker's store is wiped
    once; how long each recovery took is measured. Takes under two minutes. The format of Mission files is described in
    ops/demo/README.md. Exit code 0: verified; 1: a finding; 2: a Mission file that cannot be used.

    \b
    Examples:
      weavehold demo
      weavehold demo my-mission.toml --keep
      weavehold demo --json > report.json
    """
    configure_logs("demo", Environment().choice("WEAVEHOLD_LOG_LEVEL", log_levels, "error"))
    report = _run(_load(mission_files or _shipped()), keep=keep)
    print_result(report, as_json=as_json, people=lambda console: show_report(report, console))
    raise typer.Exit(0 if report.ok else 1)


def _shipped() -> list[Path]:
    """The Mission files that come with the product."""
    return sorted(Path(str(files("ops.demo") / "missions")).glob("*.toml"))


def _load(paths: Sequence[Path]) -> list[MissionFile]:
    if len(paths) > files_max:
        raise UsageFault(f"{len(paths)} Mission files were given: run at most {files_max} at once")
    try:
        return [load_mission_file(path) for path in paths]
    except MissionFileFault as fault:
        raise UsageFault(str(fault)) from fault


def _run(missions: Sequence[MissionFile], *, keep: bool) -> DemoReport:
    directory = Path(tempfile.mkdtemp(prefix="weavehold-demo-"))
    # PostgreSQL runs as a user of its own when we are root: it must be able to pass through.
    directory.chmod(0o711)
    try:
        with Progress(Console(stderr=True)) as progress:
            return asyncio.run(run_demo(missions, directory, progress, keep=keep))
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
