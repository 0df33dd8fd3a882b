"""Every kind of projection store, and what befalls one from outside: lost, restored, left by another version."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Protocol

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from projections.consumer import Consumer
from projections.store import ProjectionStore
from projections.store.postgres import PostgresStore
from tests.builders import test_organization
from tests.consumer_rig import open_sqlite

version_statement = "UPDATE projection_meta SET version = 99"


class StoreKind(Protocol):
    """Stores of one kind, each at a path. All but `open` is for a store that is closed."""

    url: str
    """Of the database, if there is one."""

    async def open(self, path: Path, consumer: Consumer) -> ProjectionStore:
        """A store, made when it is missing."""
        ...

    def lose(self, path: Path) -> None:
        """Remove everything that was stored."""
        ...

    def keep(self, path: Path) -> None:
        """Take a copy."""
        ...

    def restore(self, path: Path) -> None:
        """Put the copy in the place of what is there."""
        ...

    def make_strange(self, path: Path, consumer: Consumer) -> None:
        """Leave what another version of the consumer could have left."""
        ...


class SqliteFiles:
    """SQLite: a file at the path. There is no database."""

    url = ""

    async def open(self, path: Path, consumer: Consumer) -> ProjectionStore:
        return await open_sqlite(path, consumer)

    def lose(self, path: Path) -> None:
        for file in path.parent.glob(f"{path.name}.db*"):
            file.unlink()

    def keep(self, path: Path) -> None:
        shutil.copy(path.with_suffix(".db"), path.with_suffix(".kept"))

    def restore(self, path: Path) -> None:
        self.lose(path)
        shutil.copy(path.with_suffix(".kept"), path.with_suffix(".db"))

    def make_strange(self, path: Path, consumer: Consumer) -> None:
        with closing(sqlite3.connect(path.with_suffix(".db"))) as connection, connection:
            connection.execute(version_statement)
            connection.execute(f"ALTER TABLE {next(iter(consumer.tables))} ADD COLUMN of_another_time TEXT")


class PostgresSchemas:
    """PostgreSQL: a schema named for the path in the database; a copy is one of the whole database."""

    def __init__(self, database_url: str, through: str | None = None) -> None:
        """Stores reach the database `through` another URL, a proxy's."""
        self.url = database_url
        self._through = through or database_url

    async def open(self, path: Path, consumer: Consumer) -> PostgresStore:
        return await PostgresStore.open(self._through, consumer, test_organization, schema_at(path))

    def lose(self, path: Path) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema_at(path))))

    def keep(self, path: Path) -> None:
        self._replace(f"{self._database}_kept", self._database)

    def restore(self, path: Path) -> None:
        self._replace(self._database, f"{self._database}_kept")

    def drop_copy(self) -> None:
        with closing(psycopg.connect(make_conninfo(self.url, dbname="postgres"), autocommit=True)) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(f"{self._database}_kept")))

    def make_strange(self, path: Path, consumer: Consumer) -> None:
        table = next(iter(consumer.tables))
        with psycopg.connect(self.url, options=f"-c search_path={schema_at(path)}") as connection:
            connection.execute(version_statement)
            connection.execute(f"ALTER TABLE {table} ADD COLUMN of_another_time TEXT")
            connection.execute(f"CREATE VIEW of_somebody AS SELECT group_id FROM {table}")

    @property
    def _database(self) -> str:
        return str(conninfo_to_dict(self.url)["dbname"])

    def _replace(self, database: str, by: str) -> None:
        names = {"name": sql.Identifier(database), "by": sql.Identifier(by)}
        with closing(psycopg.connect(make_conninfo(self.url, dbname="postgres"), autocommit=True)) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {name} WITH (FORCE)").format(**names))
            connection.execute(sql.SQL("CREATE DATABASE {name} TEMPLATE {by}").format(**names))


def schema_at(path: Path) -> str:
    return f"projection_{path.name}"


store_kinds: dict[str, Callable[[str], StoreKind]] = {"sqlite": lambda _: SqliteFiles(), "postgres": PostgresSchemas}
"""Makes each kind in a database; the behaviour suite runs on every one (PRJ-2)."""
