"""A database or broker that a command could not use, as one message instead of a traceback (OPS-2)."""

import psycopg
from nats.errors import Error as BrokerError

from ops.command_fault import CommandFault


def server_fault(error: Exception) -> CommandFault | None:
    """What to tell about a server that was away or is not prepared; None when the error is of another kind."""
    if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction)):
        return CommandFault(f"the database lacks our schema: {_first_line(error)}. Run `weavehold migrate`")
    if isinstance(error, psycopg.OperationalError):
        return CommandFault(
            f"the database cannot be used: {_first_line(error)}. Start it, or correct WEAVEHOLD_DATABASE_URL"
        )
    if isinstance(error, (BrokerError, ConnectionError)):
        return CommandFault(
            f"a server cannot be reached: {_first_line(error)}. Start it, or correct WEAVEHOLD_NATS_URL"
        )
    return None


def _first_line(error: Exception) -> str:
    """The first line of what the server or its client said."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
