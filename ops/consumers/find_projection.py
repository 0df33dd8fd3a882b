"""The projection that somebody names on the command line."""

from pathlib import Path

from ops.command_fault import UsageFault
from ops.embedded.directory import StackDirectory
from ops.projection_place import ProjectionPlace, place_called


def find_projection(called: str, directory: Path) -> ProjectionPlace:
    """A consumer of the server's side by its name, a SQLite file, or the queue of a stack's Worker by its name.

    Raises UsageFault when there is no such file, and SettingsFault.
    """
    place = place_called(called, directory)
    if not isinstance(place, Path) or place.exists():
        return place
    queue = StackDirectory.at(directory).path / "workers" / f"{called}.sqlite"
    if queue.exists():
        return queue
    raise UsageFault(f"there is no projection {called}; `weavehold consumer list` shows those there are")
