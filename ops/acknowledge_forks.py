"""Put on record, in the projections themselves, that somebody has dealt with what forks lost.

Each acknowledgement is one statement on its fork alone, beside the consumer that writes everything else there; it is
set once and never changed, so that the record shows who answered for the loss first.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import psycopg

from ops.command_fault import CommandFault
from ops.fork_report import ForkLine
from ops.projection_place import ProjectionPlace, open_place
from projections.consumer import Consumer
from projections.store import ForkAcknowledgement
from projections.store.postgres import enter_schema, postgres_dialect
from projections.store.sql_transaction import SqlTransaction
from projections.store.sqlite import SqliteTransaction
from services.process.database import connection_string

busy_seconds: Final = 60.0
"""Seconds to wait for the consumer that writes the same file."""


def acknowledge_forks(
    places: Sequence[ProjectionPlace], forks: Iterable[ForkLine], acknowledgement: ForkAcknowledgement
) -> None:
    """Acknowledge those of these forks that nobody has acknowledged. Raises CommandFault for what cannot be written."""
    by_place: dict[str, list[int]] = {}
    for fork in forks:
        if fork.acknowledged is None:
            by_place.setdefault(fork.projection, []).append(fork.number)
    for place in places:
        numbers = by_place.get(str(place), ())
        if not numbers:
            continue
        try:
            with open_place(place) as opened:
                consumer = opened.consumer
            with _writing(place, consumer) as store:
                for number in numbers:
                    store.acknowledge_fork(number, acknowledgement)
        except (sqlite3.Error, psycopg.Error) as fault:
            raise CommandFault(f"{place} cannot be written: {str(fault).strip()}; run it again") from fault


@contextmanager
def _writing(place: ProjectionPlace, consumer: Consumer) -> Iterator[SqlTransaction]:
    """A projection in which each statement is durable by itself."""
    if isinstance(place, Path):
        address = f"{place.resolve().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, timeout=busy_seconds, isolation_level=None)) as connection:
            yield SqliteTransaction(connection, consumer)
        return
    with psycopg.connect(connection_string(place.url, name="weavehold-acknowledge"), autocommit=True) as connection:
        enter_schema(connection, place.schema)
        yield SqlTransaction(connection, consumer, postgres_dialect(consumer, reorders=False))
