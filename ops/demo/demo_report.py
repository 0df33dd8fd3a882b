"""The outcome of a demo: as one JSON object, and as tables for people."""

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from ops.demo.inject_faults import Recovery
from ops.demo.restore_drill import Restored
from ops.verify.finding import Report


class MissionOutcome(Struct, frozen=True, kw_only=True, rename="camel"):
    """One Mission: how far its history goes, and how far each Worker and the mission board have applied it."""

    name: str
    mission_id: str
    group_id: str
    state: str
    events: int
    applied: dict[str, int]


class DemoReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that a demo found. Times in seconds; `faults` are reasons other than verification to fail."""

    ok: bool
    seconds: float
    missions: tuple[MissionOutcome, ...]
    commands_accepted: int
    events_accepted: int
    events_published: int
    events_applied: int
    events_to_apply: int
    duplicates_dropped: int
    gaps_filled: int
    recoveries: tuple[Recovery, ...]
    restored: Restored | None
    verification: Report
    faults: tuple[str, ...]
    directory: str | None


def show_report(report: DemoReport, console: Console) -> None:
    """Print the tables."""
    missions = Table("Mission", "state", "Events", "applied by", title="Missions")
    for mission in report.missions:
        applied = ", ".join(f"{name} {count}" for name, count in sorted(mission.applied.items()))
        missions.add_row(mission.name, mission.state, str(mission.events), applied)
    console.print(missions)
    totals = Table("what", "count", title="What became of it")
    totals.add_row("Commands accepted", str(report.commands_accepted))
    totals.add_row("Events accepted", str(report.events_accepted))
    totals.add_row("Events published", str(report.events_published))
    totals.add_row("Events applied by Workers and board", f"{report.events_applied} of {report.events_to_apply}")
    totals.add_row("duplicates dropped", str(report.duplicates_dropped))
    totals.add_row("gaps filled", str(report.gaps_filled))
    console.print(totals)
    recoveries = Table("killed", "recovered after", "until", title="Kills")
    for recovery in report.recoveries:
        time = "not recovered" if recovery.seconds is None else f"{recovery.seconds:.2f} s"
        recoveries.add_row(recovery.killed, time, recovery.until)
    console.print(recoveries)
    if report.restored is not None:
        _show_restored(report.restored, console)
    checks = Table("check", "examined", "findings", title="Verification")
    by_check = report.verification.by_check()
    for check in sorted({*report.verification.examined, *by_check}):
        checks.add_row(check, str(report.verification.examined.get(check, 0)), str(by_check.get(check, 0)))
    console.print(checks)
    for finding in report.verification.findings:
        console.print(f"finding: {finding.check}: {finding.message}")
    for fault in report.faults:
        console.print(f"fault: {fault}")
    if report.directory is not None:
        console.print(f"kept: {report.directory}")
    console.print(f"{'PASS' if report.ok else 'FAIL'} after {report.seconds:.0f} s")


def _show_restored(restored: Restored, console: Console) -> None:
    table = Table("the database was set back", "after", title="Restore")
    table.add_row("the authority held", f"{restored.held_seconds:.2f} s")
    table.add_row(f"accepting in incarnation {restored.incarnation}", f"{restored.accepting_seconds:.2f} s")
    table.add_row("every consumer had found its fork and rebuilt", f"{restored.rebuilt_seconds:.2f} s")
    console.print(table)
    forks = Table("consumer", "had applied", "found", "lost Events named", title="Forks")
    for fork in restored.forks:
        forks.add_row(fork.consumer, str(fork.seen_sequence), str(fork.found_sequence), str(len(fork.lost_event_ids)))
    console.print(forks)
