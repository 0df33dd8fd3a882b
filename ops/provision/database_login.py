"""Logins of the database: members of one group role each, with timeouts of their own (RULE-08).

The group roles and their grants come with the migrations. What a role is set to is not inherited by its members, so
every login carries its timeouts itself; they hold also where a pooler loses what a connection asks for.
"""

import re
from enum import StrEnum
from typing import Final

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

login_pattern: Final = r"[a-z_][a-z0-9_]{0,62}"
"""Names that need no quotes anywhere, in at most the 63 characters that PostgreSQL keeps."""
reserved_names: Final = ("public", "none")
"""Names that PostgreSQL gives to no role."""

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


def create_login_sql(name: str, role: Role) -> str:
    """One statement that makes a login, or brings it up to date; may be repeated. Raises UsageFault for its name.

    It is also for whoever may not let this program make roles. It refuses what `create_login` refuses.
    """
    if not re.fullmatch(login_pattern, name) or name.startswith(("pg_", "weavehold_")) or name in reserved_names:
        raise UsageFault(
            f"the login name {name!r} cannot be used: take 1 to 63 of a-z, 0-9 and _, beginning with a letter or _, "
            f"and neither one that begins with pg_ or weavehold_ nor {' nor '.join(reserved_names)}"
        )
    login = sql.Identifier(name)
    settings = (
        sql.SQL(statements.set_parameter).format(
            login=login, parameter=sql.Identifier(parameter), value=sql.Literal(value)
        )
        for parameter, value in parameters_of(role).items()
    )
    composed = sql.SQL(statements.create_login).format(
        login=login,
        login_name=sql.Literal(name),
        role=sql.Identifier(role.group),
        role_name=sql.Literal(role.group),
        groups=sql.Literal([each.group for each in Role]),
        settings=sql.SQL(";\n    ").join(settings),
    )
    return f"{composed.as_string()};\n"


def create_login(url: str, name: str, role: Role) -> Login:
    """Make a login without a password, or bring its membership and settings up to date. Safe to repeat.

    What else an existing login was set to is reset, for the role itself and in this database. Raises UsageFault for
    the name; CommandFault when the group roles are missing, or the name is that of a superuser, of a role that cannot
    log in, or of a login with another of our roles; `psycopg.Error`.
    """
    statement = create_login_sql(name, role)
    with psycopg.connect(url, autocommit=True) as connection:
        existed = connection.execute(statements.find_login, {"name": name}).fetchone() == (True,)
        try:
            connection.execute(statement.encode())
        except psycopg.errors.RaiseException as fault:
            raise CommandFault(fault.diag.message_primary or str(fault)) from fault
    return Login(name=name, role=role.value, created=not existed)
