"""The green version of a projection: a store of its own beside the live one, which a rebuild fills.

Beside a SQLite file it is the file `green.sqlite` in the folder `<file>.green`; beside a schema `projection_…` it is
the schema `green_…` of the same database. Neither is found by whoever looks for projections.
"""

from pathlib import Path
from typing import Final, Protocol

import psycopg
from msgspec import Struct

from ops.projection_place import ProjectionPlace, ProjectionSchema
from projections.store.postgres import find_schema
from services.process.database import connection_string

green_folder_suffix: Final = ".green"
green_file_name: Final = "green.sqlite"


class Green(Protocol):
    """The place beside one live version."""

    def is_there(self) -> bool:
        """Whether a rebuild left something here that was not exchanged, or not removed."""
        ...


class GreenFile(Struct, frozen=True):
    """Beside the SQLite file `live`."""

    live: Path

    @property
    def folder(self) -> Path:
        """What it lies in."""
        return self.live.with_name(self.live.name + green_folder_suffix)

    def is_there(self) -> bool:
        """Whether there is a file."""
        return (self.folder / green_file_name).exists()


class GreenSchema(Struct, frozen=True):
    """Beside the schema `live`."""

    live: ProjectionSchema

    @property
    def schema(self) -> str:
        """The schema that it is."""
        return "green_" + self.live.schema.removeprefix("projection_")

    def is_there(self) -> bool:
        """Whether there is a schema."""
        address = connection_string(self.live.url, name="weavehold-look")
        with psycopg.connect(address, autocommit=True) as connection:
            return find_schema(connection, self.schema)


def green_beside(place: ProjectionPlace) -> GreenFile | GreenSchema:
    """Where the green version of a projection lies; it need not be there."""
    return GreenFile(place) if isinstance(place, Path) else GreenSchema(place)
