"""Migrations: plain SQL files under `ops/migrations`, applied by dbmate, each in one transaction."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from ops.command_fault import CommandFault
from services.process.settings import redact_url

migrations: Final = Path(__file__).parent / "migrations"
migrate_seconds_max: Final = 600.0
"""Seconds for all pending migrations together."""


class MigrationFault(CommandFault):
    """A migration could not be applied; the message is the tool's, without secrets."""


@dataclass(frozen=True)
class Migration:
    """One migration file."""

    version: str
    file: Path
    applied: bool

    def sql_up(self) -> str:
        """The statements that the migration runs."""
        text = self.file.read_text(encoding="utf-8")
        return re.split(r"^--\s*migrate:down.*$", text, flags=re.MULTILINE)[0].split("\n", 1)[1].strip()


def _program() -> str:
    beside = Path(sys.executable).parent / "dbmate"
    found = str(beside) if beside.exists() else shutil.which("dbmate")
    if found is None:
        raise MigrationFault("dbmate is not installed. Install weavehold[embedded]")
    return found


def _tool_url(database_url: str) -> str:
    """The URL as the tool's driver wants it: TLS only where the URL asks for it."""
    parts = urlsplit(database_url)
    if "sslmode" in parse_qs(parts.query):
        return database_url
    return parts._replace(query="&".join(filter(None, (parts.query, "sslmode=disable")))).geturl()


def _run(database_url: str, *arguments: str) -> str:
    command = [_program(), "--no-dump-schema", "--migrations-dir", str(migrations), *arguments]
    # By the environment, so that no password stands in the process list.
    environment = {"DATABASE_URL": _tool_url(database_url), "PATH": ""}
    try:
        done = subprocess.run(  # noqa: S603 - our own tool
            command, check=False, capture_output=True, text=True, timeout=migrate_seconds_max, env=environment
        )
    except subprocess.TimeoutExpired:
        raise MigrationFault(f"migrations took longer than {migrate_seconds_max:g} s and were ended") from None
    if done.returncode != 0:
        raise MigrationFault(f"{redact_url(done.stderr.strip())} ({redact_url(database_url)})")
    return done.stdout


def _states(database_url: str) -> Iterator[Migration]:
    for line in _run(database_url, "status").splitlines():
        if found := re.fullmatch(r"\[(X| )\]\s+((\d+)\S*\.sql)", line.strip()):
            yield Migration(found[3], migrations / found[2], applied=found[1] == "X")


def list_migrations(database_url: str) -> list[Migration]:
    """All migrations in order, with whether each is applied; changes nothing. Raises `MigrationFault`."""
    return list(_states(database_url))


def migrate(database_url: str) -> list[Migration]:
    """Apply what is pending to an existing database and return that. Raises `MigrationFault`."""
    pending = [migration for migration in list_migrations(database_url) if not migration.applied]
    if pending:
        _run(database_url, "migrate")
    return pending


def roll_back(database_url: str) -> None:
    """Take back the newest applied migration. Raises `MigrationFault`."""
    _run(database_url, "rollback")
