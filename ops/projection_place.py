"""Where the projections of a stack lie, and one opened for looking at it only, in whichever store (PRJ-2)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
from msgspec import Struct

from ops.command_fault import UsageFault
from ops.embedded.directory import StackDirectory
from ops.embedded.environment import stack_variables
from ops.projection_file import NotAProjection, OpenedProjection, consumer_of, of_another_version, open_projection
from projections.consumer import Consumer
from projections.listing import server_consumers
from projections.store.found_store import FoundStore
from projections.store.postgres import enter_schema, list_projections, postgres_dialect, schema_of
from projections.work_queue.consumer import WorkQueue
from services.process.database import connection_string
from services.process.settings import Environment, redact_url
from services.process.statements import load
from services.projector.projection_store import ProjectionSettings, read_projection_settings

_sql = load("projections.store", "postgres")


class ProjectionSchema(Struct, frozen=True):
    """A projection in PostgreSQL."""

    url: str
    schema: str

    @property
    def name(self) -> str:
        """How it is called where there are several."""
        return self.schema

    def __str__(self) -> str:
        return f"{self.schema} in {redact_url(self.url)}"


type ProjectionPlace = Path | ProjectionSchema
"""A SQLite file or a schema."""


@contextmanager
def open_place(place: ProjectionPlace) -> Iterator[OpenedProjection]:
    """Open a projection for the length of a block. Raises NotAProjection, also for a fault inside the block."""
    opening = open_projection(place) if isinstance(place, Path) else _open_schema(place)
    with opening as opened:
        yield opened


@contextmanager
def _open_schema(place: ProjectionSchema) -> Iterator[OpenedProjection]:
    try:
        with psycopg.connect(connection_string(place.url, name="weavehold-look"), autocommit=True) as connection:
            enter_schema(connection, place.schema)
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            connection.autocommit = False
            _, name, version, variant, owner = connection.execute(_sql.read_meta).fetchone() or (0, "", 0, "", "")
            consumer = consumer_of(name, version, variant)
            if consumer is None:
                raise NotAProjection(of_another_version(place, name, version))
            snapshot = FoundStore(connection, consumer, postgres_dialect(consumer, reorders=False))
            yield OpenedProjection(consumer, owner, snapshot)
    except psycopg.errors.UndefinedTable as fault:
        raise NotAProjection(f"there is no projection {place}") from fault
    except psycopg.Error as fault:
        raise NotAProjection(f"{place} cannot be read as a projection: {str(fault).strip()}") from fault


def place_of_consumer(
    consumer: Consumer, directory: Path, variables: Mapping[str, str] | None = None
) -> ProjectionPlace:
    """Where a consumer of the server's side lies, by the environment and a directory's stack; it need not be there.

    `variables` are, if given, those that the projector was told. Raises SettingsFault.
    """
    environment = Environment(stack_variables(directory) if variables is None else variables)
    settings = _settings(environment, directory)
    if settings.database_url is None:
        return settings.file_of(consumer)
    return ProjectionSchema(settings.database_url, schema_of(consumer, _organization_id(environment)))


def place_called(called: str, directory: Path) -> ProjectionPlace:
    """The projection that somebody names: a consumer's wherever it lies, or a SQLite file.

    Raises SettingsFault, and UsageFault for a name that several have.
    """
    named = next((consumer for consumer in server_consumers() if consumer.name == called), None)
    if named is not None:
        return place_of_consumer(named, directory)
    of_a_worker = StackDirectory.at(directory).path / "workers" / f"{called}.sqlite"
    if called == WorkQueue.name and not (Path(called).exists() or of_a_worker.exists()):
        raise UsageFault(
            f"each Worker has a {called} of its own: name its Worker; `weavehold consumer list` shows them"
        )
    return Path(called)


def command_name(consumer: str, place: str) -> str:
    """How commands are told a projection that lies at `place`: its consumer's name, its Worker's, or its file."""
    folder, is_file = Path(place).parent.name, place.endswith(".sqlite")
    if is_file and folder not in {"workers", "projections"}:
        return place
    return Path(place).stem if folder == "workers" else consumer


def projection_places(directory: Path) -> list[ProjectionPlace]:
    """All projections of a stack: those in files, its Workers' too, and its own ones in the projections' database.

    Raises SettingsFault, and NotAProjection when that database cannot be asked.
    """
    home, environment = StackDirectory.at(directory).path, Environment(stack_variables(directory))
    files = sorted(file for folder in ("workers", "projections") for file in (home / folder).glob("*.sqlite"))
    url = _settings(environment, directory).database_url
    if url is None:
        return [*files]
    try:
        with psycopg.connect(connection_string(url, name="weavehold-look"), autocommit=True) as connection:
            schemas = [ProjectionSchema(url, schema) for schema in list_projections(connection)]
    except psycopg.Error as fault:
        raise NotAProjection(f"{redact_url(url)} cannot be asked for projections: {str(fault).strip()}") from fault
    organization_id = _organization_id(environment)
    return [*files, *(place for place in schemas if _owner_of(place) in (None, organization_id))]


def _owner_of(place: ProjectionPlace) -> str | None:
    """The Organization whose projection it is; None when it does not say."""
    try:
        with open_place(place) as opened:
            return opened.organization_id
    except NotAProjection:
        return None


def _settings(environment: Environment, directory: Path) -> ProjectionSettings:
    return read_projection_settings(environment, StackDirectory.at(directory).projections)


def _organization_id(environment: Environment) -> str:
    return environment.identifier(
        "WEAVEHOLD_ORGANIZATION", remedy="Set the Organization's ID, as `weavehold init` printed it"
    )
