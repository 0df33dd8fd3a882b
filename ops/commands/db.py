"""`weavehold db roles|create-login`."""

import sys
from shutil import which
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from ops.cells import line
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption, database_to_prepare
from ops.embedded.postgres_server import installed_binaries
from ops.output import JsonOption, print_result
from ops.provision.database_login import Role, create_login, create_login_sql, parameters_of

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="See what each process may do in the database, and make logins for them.",
)


@app.command()
def roles(as_json: JsonOption = False) -> None:
    """List the group roles: what each is for, and what a login of it is set to. The migrations make them.

    \b
    Examples:
      weavehold db roles
      weavehold db roles --json
    """
    listed = [
        {"role": role, "group": role.group, "for": role.purpose, "settings": parameters_of(role)} for role in Role
    ]

    def people(console: Console) -> None:
        table = Table("role", "group role", "for")
        for role in Role:
            table.add_row(role.value, role.group, role.purpose)
        console.print(table)

    print_result({"roles": listed}, as_json=as_json, people=people)


@app.command("create-login")
def create(
    name: Annotated[str, typer.Argument(help="The login, such as relay_1.")],
    role: Annotated[Role, typer.Option(help="What it is for.")],
    show_sql: Annotated[bool, typer.Option("--print-sql", help="Print the SQL; reach no database.")] = False,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Make a login with one role and its timeouts, or bring an existing one up to date. It gets no password.

    Give it one with psql (\\password), or a certificate, as pg_hba.conf wants it. Works on WEAVEHOLD_DATABASE_URL as
    somebody who may make roles, else on the embedded stack in the directory.

    \b
    Examples:
      weavehold db create-login relay_1 --role relay
      weavehold db create-login authority_1 --role authority --print-sql | psql -v ON_ERROR_STOP=1 -d weavehold
      WEAVEHOLD_DATABASE_URL=postgresql://dba@db/weavehold weavehold db create-login auditor_1 --role auditor --json
    """
    if show_sql:
        _print_sql(name, role, as_json=as_json)
        return
    with database_to_prepare(directory) as url:
        login = create_login(url, name, role)
    what = "made" if login.created else "brought up to date"

    def people(console: Console) -> None:
        console.print(line(f"{login.name} ({role}): {what}"))
        if which("psql") is None and (installed := installed_binaries()) is not None:
            console.print(line(f"no psql is on the PATH; one is installed here: {installed / 'psql'}"))

    print_result(login, as_json=as_json, people=people)


def _print_sql(name: str, role: Role, *, as_json: bool) -> None:
    text = create_login_sql(name, role)
    sys.stdout.write(msgspec.json.encode({"sql": text}).decode() + "\n" if as_json else text)
