"""`weavehold migrate`."""

from typing import Annotated

import typer
from rich.console import Console

from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption, database_to_prepare
from ops.migrate import list_migrations, migrate
from ops.output import JsonOption, print_result


def command(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the SQL that would run; change no schema.")] = False,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Apply the pending migrations, each in one transaction.

    Works on WEAVEHOLD_DATABASE_URL, else on the stack running in the directory, else on the embedded PostgreSQL there.

    \b
    Examples:
      weavehold migrate --dry-run
      weavehold migrate --json
      WEAVEHOLD_DATABASE_URL=postgresql://app@db/weavehold weavehold migrate
    """
    with database_to_prepare(directory) as url:
        if dry_run:
            migrations = [migration for migration in list_migrations(url) if not migration.applied]
        else:
            migrations = migrate(url)

    def people(console: Console) -> None:
        for migration in migrations:
            console.print(f"{'-- pending' if dry_run else 'applied'} {migration.file.name}")
            if dry_run:
                console.out(migration.sql_up(), highlight=False)
        if not migrations:
            console.print("the schema is up to date")

    result = {
        "pending" if dry_run else "applied": [
            {"version": migration.version, "file": migration.file.name}
            | ({"sql": migration.sql_up()} if dry_run else {})
            for migration in migrations
        ]
    }
    print_result(result, as_json=as_json, people=people)
