"""Where a server-side projection lives: by its settings, a SQLite file or a schema in PostgreSQL (PRJ-2)."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from projections.consumer import Consumer
from projections.store.postgres import PostgresStore
from projections.store.sqlite import SqliteStore
from services.process.settings import Environment, SettingsFault

store_variable: Final = "WEAVEHOLD_PROJECTION_STORE"
folder_variable: Final = "WEAVEHOLD_PROJECTIONS_DIR"
database_variable: Final = "WEAVEHOLD_PROJECTION_DATABASE_URL"

_kinds: Final = ("sqlite", "postgres")


class ProjectionSettings(Struct, frozen=True):
    """A folder of SQLite files, or with `database_url` a database in which each projection has a schema."""

    folder: Path
    database_url: str | None

    def file_of(self, consumer: Consumer) -> Path:
        """The file of a consumer."""
        return self.folder / f"{consumer.name}.sqlite"


def read_projection_settings(environment: Environment, default_folder: Path) -> ProjectionSettings:
    """Read where projections live. Raises SettingsFault."""
    url = None
    if environment.choice(store_variable, _kinds, "sqlite") == "postgres":
        url = environment.url(
            database_variable,
            ("postgresql", "postgres"),
            remedy=f"Set postgresql://user@host:port/database, or {store_variable}=sqlite",
        )
    return ProjectionSettings(environment.path(folder_variable, default_folder), url)


async def open_store(
    settings: ProjectionSettings, consumer: Consumer, organization_id: str
) -> SqliteStore | PostgresStore:
    """The store of a consumer, made when it is missing; one in PostgreSQL connects at its first use.

    Raises SettingsFault for a folder that cannot be, and `sqlite3.Error`.
    """
    if settings.database_url is not None:
        return PostgresStore(settings.database_url, consumer, organization_id)
    try:
        settings.folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        problem = f"is {settings.folder}, which cannot be made: {fault.strerror}"
        raise SettingsFault(folder_variable, problem, "Name another") from fault
    return await SqliteStore.open(settings.file_of(consumer), consumer, organization_id)
