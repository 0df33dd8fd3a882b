"""A projection's SQLite file, opened for looking at it only: nothing is written, and its owner goes on beside."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from projections.consumer import Consumer
from projections.listing import listed_consumers
from projections.store.found_store import FoundStore
from projections.store.sqlite import sqlite_dialect
from services.process.statements import load

store_sql = load("projections.store", "sqlite")


class NotAProjection(Exception):
    """The place holds no projection that this version can read; the message names it."""


class OpenedProjection(Struct, frozen=True):
    """Whose rows they are, and one consistent snapshot of them."""

    consumer: Consumer
    organization_id: str
    snapshot: FoundStore


@contextmanager
def open_projection(file: Path) -> Iterator[OpenedProjection]:
    """Open a file for the length of a block. Raises NotAProjection, also for a fault of SQLite inside the block."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)) as database:
            database.execute(store_sql.begin_reading)
            _, name, version, variant, owner = database.execute(store_sql.read_meta).fetchone() or (0, "", 0, "", "")
            consumer = consumer_of(name, version, variant)
            if consumer is None:
                raise NotAProjection(of_another_version(file, name, version))
            yield OpenedProjection(consumer, owner, FoundStore(database, consumer, sqlite_dialect(consumer)))
    except sqlite3.Error as fault:
        raise NotAProjection(f"{file} cannot be read as a projection: {fault}") from fault


def of_another_version(place: object, name: str, version: int) -> str:
    """What is wrong with a place whose consumer this version does not have, and the remedy."""
    return (
        f"{place} holds {name or 'nothing'} {version}, which this version cannot read: start its process once, which "
        "discards and replays it; or remove it when no process keeps it any more"
    )


def consumer_of(name: str, version: int, variant: str) -> Consumer | None:
    """The consumer that made what a projection says of itself; None when this version has no such one."""
    identity = (name, version, variant)
    listed = listed_consumers(variant)
    return next((each for each in listed if (each.name, each.version, each.variant) == identity), None)
