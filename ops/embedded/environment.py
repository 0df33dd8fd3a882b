"""Where a command finds the stack it works on: the environment, else the stack that runs in the directory."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ops.embedded.directory import DirectoryLock, StackDirectory, default_directory
from ops.embedded.ensure_database import ensure_database
from ops.embedded.postgres_server import PostgresServer

DirectoryOption = Annotated[
    Path, typer.Option("--directory", envvar="WEAVEHOLD_DIRECTORY", help="Where the embedded stack lives.")
]
"""The option of every command that works on the embedded stack; its default is `default_directory`."""


def stack_variables(
    directory: Path = default_directory, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """All variables for a command: those of the stack running in `directory`, overridden by the environment's."""
    return StackDirectory.at(directory).variables() | dict(os.environ if environment is None else environment)


@contextmanager
def database_to_prepare(directory: Path) -> Iterator[str]:
    """The URL of the database that `init` and `migrate` work on.

    That of WEAVEHOLD_DATABASE_URL, else of the stack that runs in `directory`, else an embedded server started there
    for the time of the block. Raises `EmbeddedFault`.
    """
    stack = StackDirectory.at(directory)
    url = stack_variables(directory).get("WEAVEHOLD_DATABASE_URL")
    if url:
        yield url
        return
    stack.prepare()
    lock = DirectoryLock(stack)
    lock.acquire()
    server = PostgresServer(stack.postgres, log=stack.log("postgres"))
    try:
        server.start()
        ensure_database(server.url())
        yield server.url("weavehold")
    finally:
        server.stop()
        lock.release()
