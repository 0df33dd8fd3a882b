"""Logins of the database: members of one group role each, with timeouts of their own (RULE-08).

The group roles and their grants come with the migrations. What a role is set to is not inherited by its members, so
every login carries its timeouts itself; they hold also where a pooler loses what a connection asks for.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, LiteralString

import psycopg
from msgspec import Struct
from psycopg import sql

from ops.command_fault import CommandFault, UsageFault
from services.process.database import (
    idle_in_transaction_seconds,
    lock_timeout_seconds,
    statement_timeout_seconds,
    unacknowledged_milliseconds,
)
from services.process.statements import load

login_characters_max: Final = 63
"""Characters of a role's name that PostgreSQL keeps."""

statements: Final = load(__package__)


class Role(StrEnum):
    """A group role of the migrations, by what its members are for."""

    AUTHORITY = "authority"
    RELAY = "relay"
    READER = "reader"
    AUDITOR = "auditor"

    @property
    def group(self) -> str:
        """The name of the group role."""
        return f"weavehold_{self.value}"

    @property
    def purpose(self) -> str:
        """What a member is for, in words."""
        return _purposes[self]


_purposes: Final = {
    Role.AUTHORITY: "weavehold authority: appends to what is history, changes only what is the present",
    Role.RELAY: "weavehold relay: reads the outbox, writes its own leases and positions",
    Role.READER: "weavehold verify, group, cursor, keys show, keys audit: reads all but challenges and failures",
    Role.AUDITOR: "a reader that is also shown why signatures failed (weavehold keys failures)",
}

_every_login: Final = {
    "lock_timeout": f"{lock_timeout_seconds}s",
    "idle_in_transaction_session_timeout": f"{idle_in_transaction_seconds}s",
    "tcp_keepalives_idle": "5s",
    "tcp_keepalives_interval": "2s",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": f"{unacknowledged_milliseconds}ms",
    "client_connection_check_interval": "5s",
}
_service_login: Final = {
    "statement_timeout": f"{statement_timeout_seconds}s",
    # Every statement of theirs looks rows up by a key (see services.process.database).
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
"""For logins whose statements are all short; verification reads long."""


class Login(Struct, frozen=True, kw_only=True, rename="camel"):
    """A login that is there now, and whether this run made it."""

    name: str
    role: str
    created: bool


def parameters_of(role: Role) -> dict[str, str]:
    """What a login of this role is set to."""
    return _every_login | (_service_login if role in (Role.AUTHORITY, Role.RELAY) else {})


def login_statements(name: str, role: Role, *, exists: bool) -> list[sql.Composed]:
    """The statements that make a login, or bring an existing one up to date. Raises UsageFault for its name."""
    if not name or len(name.encode()) > login_characters_max or name.startswith(("pg_", "weavehold_")):
        raise UsageFault(
            f"the login name {name!r} cannot be used: take 1 to {login_characters_max} bytes, and no name that begins "
            "with pg_ or weavehold_"
        )
    return list(_compose(name, role, exists=exists))


def _compose(name: str, role: Role, *, exists: bool) -> Iterator[sql.Composed]:
    named = {"login": sql.Identifier(name), "role": sql.Identifier(role.group)}
    yield _composed(statements.grant_role if exists else statements.create_login, **named)
    for parameter, value in parameters_of(role).items():
        setting = {"parameter": sql.Identifier(parameter), "value": sql.Literal(value)}
        yield _composed(statements.set_parameter, login=named["login"], **setting)


def _composed(statement: LiteralString, **parts: sql.Composable) -> sql.Composed:
    return sql.SQL(statement).format(**parts)


def print_sql(name: str, role: Role) -> str:
    """The statements for a new login as a script, for whoever may not let this program make roles."""
    return "".join(f"{statement.as_string()};\n" for statement in login_statements(name, role, exists=False))


def create_login(url: str, name: str, role: Role) -> Login:
    """Make a login without a password, or bring its membership and settings up to date. Safe to repeat.

    Raises CommandFault when the group roles are missing or the name is another kind of role's, `psycopg.Error`.
    """
    login_statements(name, role, exists=False)
    with psycopg.connect(url, autocommit=True) as connection:
        asked = {"names": [name, role.group]}
        found: dict[str, bool] = dict(connection.execute(statements.read_roles, asked).fetchall())
        if role.group not in found:
            raise CommandFault(f"the role {role.group} is not there; run `weavehold migrate` first")
        if found.get(name) is False:
            raise CommandFault(f"{name} is a role that cannot log in; take another name")
        for statement in login_statements(name, role, exists=name in found):
            connection.execute(statement)
    return Login(name=name, role=role.value, created=name not in found)
