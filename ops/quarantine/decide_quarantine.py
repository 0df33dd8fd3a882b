"""Write a decision into the store of a projection, beside the process that writes everything else there.

One transaction per projection; what it does stands in `projections/decide_quarantine.py`. On a SQLite file it waits
for the writer, in PostgreSQL it keeps the rows from being exchanged meanwhile.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import psycopg

from ops.command_fault import CommandFault
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place
from projections.quarantine import DecisionRefused
from projections.store import StoreReplaced
from projections.store.layout import Identity
from projections.store.postgres import write_beside_schema
from projections.store.sql_transaction import SqlTransaction
from projections.store.sqlite import write_beside
from services.process.database import connection_string


def decide_in[T](place: ProjectionPlace, work: Callable[[SqlTransaction], T]) -> T:
    """Run `work` in one transaction of a projection.

    Raises CommandFault for what is refused or cannot be written, and for a commit whose answer was lost.
    """
    worked = False

    def noted(transaction: SqlTransaction) -> T:
        nonlocal worked
        result = work(transaction)
        worked = True
        return result

    try:
        with open_place(place) as opened:
            identity = Identity(opened.consumer, opened.organization_id)
        if isinstance(place, Path):
            return write_beside(place, identity, noted)
        with psycopg.connect(connection_string(place.url, name="weavehold-quarantine"), autocommit=True) as connection:
            return write_beside_schema(connection, place.schema, identity, noted)
    except (DecisionRefused, NotAProjection) as fault:
        raise CommandFault(f"{fault}. Nothing is changed") from fault
    except StoreReplaced as fault:
        raise CommandFault(f"{fault}; look at it again. Nothing is changed") from fault
    except (sqlite3.Error, psycopg.Error) as fault:
        problem = str(fault).strip()
        if worked:
            raise CommandFault(
                f"{place} may have been written, the answer is lost: {problem}. Look with `weavehold quarantine show` "
                "before you run it again"
            ) from fault
        raise CommandFault(f"{place} cannot be written: {problem}. Nothing is changed; run it again") from fault
