"""Keys, audits and failures as text and tables for people; `--json` has everything."""

from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from ops.cells import cell, line
from ops.keys.audit_registry import RegistryAudit, first_end
from ops.keys.read_failures import FailureReport
from ops.keys.read_registry import KeyLine, RegistryReport, Standing
from ops.keys.register_key import Registered
from ops.keys.revoke_key import Revoked
from ops.keys.rotate_key import Rotated

rows_shown_max: Final = 200
"""Rows of one table for people; --json has all."""


def show_registered(console: Console, done: Registered, out: Path | None) -> None:
    """A bound key."""
    until = "without a planned end" if done.valid_until is None else f"until {done.valid_until}"
    how = "was registered already" if done.already else "is registered"
    console.print(line(f"{done.key_id} of {done.principal.id} {how}, valid from {done.valid_from} {until}"))
    if out is not None:
        console.print(line(f"its private key is in {out}"))


def show_rotated(console: Console, done: Rotated) -> None:
    """A finished rotation."""
    how = "finished what an earlier call had begun: " if done.resumed else ""
    console.print(line(f"{how}{done.file} of {done.principal.id} holds {done.after}"))
    console.print(line(f"{done.before} ends at {done.before_valid_until}; until then both are valid"))


def show_revoked(console: Console, done: Revoked, since: str | None, vouched: dict[str, int] | None) -> None:
    """A revocation, what it means, and what the key vouched for since a suspicion."""
    how = "was revoked before" if done.already else "is revoked"
    console.print(line(f"{done.key_id} {how}, at {done.revoked_at}: no process accepts anything signed with it"))
    console.print("what was accepted before stays accepted and verifiable")
    if vouched is not None:
        counted = ", ".join(f"{kind} {amount}" for kind, amount in vouched.items()) or "nothing"
        console.print(line(f"since {since} it vouched for: {counted}"))


def show_registry(console: Console, report: RegistryReport) -> None:
    """Keys with the statements of their ends."""
    table = Table("Principal", "key", "stands", "valid from", "statements of its end")
    for key in report.keys[:rows_shown_max]:
        stated = "\n".join(_statement_words(key))
        table.add_row(
            cell(key.principal.id), cell(key.key_id), cell(_standing_words(key)), cell(key.valid_from), _lines(stated)
        )
    console.print(table)
    if len(report.keys) > rows_shown_max:
        console.print(f"… and {len(report.keys) - rows_shown_max} more: use --json, or name a key or Principal")


def _lines(text: str) -> Table:
    """Several lines in one cell."""
    grid = Table.grid()
    for each in text.splitlines():
        grid.add_row(cell(each))
    return grid


def _standing_words(key: KeyLine) -> str:
    if key.standing is Standing.RETIRED:
        return f"retired since {key.valid_until}"
    if key.standing is Standing.REVOKED:
        return f"revoked since {key.revoked_at}"
    if key.standing is Standing.ENDING:
        return f"valid, ends at {first_end(key)}"
    return str(key.standing.value)


def _statement_words(key: KeyLine) -> list[str]:
    return [
        f"{each.sequence}: "
        + ", ".join(f"{name} {end}" for name, end in (("until", each.valid_until), ("revoked", each.revoked_at)) if end)
        + f" (said {each.recorded_at}, Event {each.event_id or 'none'})"
        for each in key.statements
    ]


def show_audit(console: Console, found: RegistryAudit) -> None:
    """Findings, notes, verdict."""
    for finding in found.report.findings:
        console.print(line(f"finding: {finding.message}"))
    for note in found.notes:
        console.print(line(f"note: {note}"))
    examined = found.report.examined.get("keys", 0)
    verdict = "agrees with its history" if found.report.ok else f"has {found.report.found} findings"
    console.print(line(f"the registry of {examined} keys {verdict}"))


def show_failures(console: Console, report: FailureReport) -> None:
    """Failures by stage, reason and key."""
    table = Table(
        "times", "stage", "reason", "key", "last", title=str(line(f"authentication failures since {report.since}"))
    )
    for each in report.counts[:rows_shown_max]:
        table.add_row(*(cell(value) for value in (each.count, each.stage, each.reason, each.key_id, each.last_at)))
    console.print(table)
