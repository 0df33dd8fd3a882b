"""The green version of a projection: a store of its own beside the live one, which one rebuild at a time fills.

Beside a SQLite file it is the file `green.sqlite` in the folder `<file>.green`; beside a schema `projection_…` it is
the schema `green_…` of the same database. Neither is found by whoever looks for projections. Both are locked by a
rebuild as long as it runs, however it ends.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import psycopg
from msgspec import Struct

from ops.folder_lock import FolderInUse, alone_in
from ops.projection_place import ProjectionPlace, ProjectionSchema
from projections.consumer import Consumer
from projections.store import ProjectionStore
from projections.store.exchange import ExchangeTransaction
from projections.store.layout import Identity
from projections.store.postgres import PostgresStore, drop_schema, exchange_schema, find_schema, lock_projection
from projections.store.postgres_session import Connection
from projections.store.sqlite import SqliteStore, exchange_file
from services.process.database import Timeouts, connection_string

green_folder_suffix: Final = ".green"
green_file_name: Final = "green.sqlite"


class RebuildRuns(Exception):
    """Another rebuild of the same projection is at work."""


class HeldGreen(Protocol):
    """A green version that is locked by this rebuild."""

    async def open(self, consumer: Consumer, organization_id: str) -> ProjectionStore:
        """Its store, made when it is missing; what another version left in it is discarded."""
        ...

    def exchange[T](self, identity: Identity, work: Callable[[ExchangeTransaction], T]) -> T:
        """Run `work` in one transaction of the live store; see `projections.exchange_groups`."""
        ...

    def remove(self) -> None:
        """Remove it; its store is closed."""
        ...


class GreenFile(Struct, frozen=True):
    """Beside the SQLite file `live`."""

    live: Path

    @property
    def folder(self) -> Path:
        """What it lies in."""
        return self.live.with_name(self.live.name + green_folder_suffix)

    @property
    def file(self) -> Path:
        """The file itself."""
        return self.folder / green_file_name

    def is_there(self) -> bool:
        """Whether a rebuild left something here."""
        return self.file.exists()

    @contextmanager
    def held(self) -> Iterator["GreenFile"]:
        """Keep other rebuilds away for the length of a block. Raises RebuildRuns, OSError."""
        self.folder.mkdir(exist_ok=True)
        try:
            with alone_in(self.folder):
                yield self
        except FolderInUse as fault:
            raise RebuildRuns(f"another rebuild of {self.live} is running") from fault

    async def open(self, consumer: Consumer, organization_id: str) -> SqliteStore:
        """Its store."""
        return await SqliteStore.open(self.file, consumer, organization_id)

    def exchange[T](self, identity: Identity, work: Callable[[ExchangeTransaction], T]) -> T:
        """Run `work` in one transaction of the live file."""
        return exchange_file(self.live, self.file, identity, work)

    def remove(self) -> None:
        """Remove file and folder."""
        shutil.rmtree(self.folder)


class GreenSchema(Struct, frozen=True):
    """Beside the schema `live`."""

    live: ProjectionSchema

    @property
    def schema(self) -> str:
        """The schema that it is."""
        return "green_" + self.live.schema.removeprefix("projection_")

    def is_there(self) -> bool:
        """Whether a rebuild left something here."""
        with self._connect() as connection:
            return find_schema(connection, self.schema)

    @contextmanager
    def held(self) -> Iterator["HeldGreenSchema"]:
        """Keep other rebuilds away for the length of a block. Raises RebuildRuns, `psycopg.Error`."""
        with self._connect() as connection:
            if not lock_projection(connection, f"{self.schema}/rebuild"):
                raise RebuildRuns(f"another rebuild of {self.live} is running")
            yield HeldGreenSchema(self, connection)

    def _connect(self) -> Connection:
        # Copying a Group's rows takes as long as it takes; a server that went away is noticed by its silence.
        address = connection_string(self.live.url, name="weavehold-rebuild", timeouts=Timeouts(statement=0))
        return psycopg.connect(address, autocommit=True)


class HeldGreenSchema(Struct, frozen=True):
    """A green schema, locked by the session of `connection`."""

    green: GreenSchema
    connection: Connection

    async def open(self, consumer: Consumer, organization_id: str) -> PostgresStore:
        """Its store."""
        return await PostgresStore.open(self.green.live.url, consumer, organization_id, self.green.schema)

    def exchange[T](self, identity: Identity, work: Callable[[ExchangeTransaction], T]) -> T:
        """Run `work` in one transaction of the live schema."""
        return exchange_schema(self.connection, (self.green.live.schema, self.green.schema), identity, work)

    def remove(self) -> None:
        """Drop the schema."""
        drop_schema(self.connection, self.green.schema)


def green_beside(place: ProjectionPlace) -> GreenFile | GreenSchema:
    """Where the green version of a projection lies; it need not be there."""
    return GreenFile(place) if isinstance(place, Path) else GreenSchema(place)
