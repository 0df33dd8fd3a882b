"""`weavehold init`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ops.cells import line
from ops.embedded.directory import StackDirectory, default_directory
from ops.embedded.environment import DirectoryOption, database_to_prepare
from ops.init import Organization, initialize, shard_count_default
from ops.migrate import migrate
from ops.output import JsonOption, print_result
from services.process.database import connect
from services.process.settings import Environment


async def _initialize(database_url: str, name: str, keys_directory: Path, shards: int | None) -> Organization:
    connection = await connect(database_url, name="weavehold-init")
    try:
        return await initialize(connection, name=name, keys_directory=keys_directory, shard_count=shards)
    finally:
        await connection.close()


def _described(organization: Organization) -> dict[str, Any]:
    return {
        "organizationId": organization.organization_id,
        "name": organization.name,
        "shards": organization.shard_count,
        "incarnation": organization.incarnation,
        "keysDirectory": str(organization.keys_directory),
        "keys": [{"keyId": key.key_id, "principal": key.principal.id} for key in organization.keys],
        "created": list(organization.created),
        "advice": list(organization.advice),
    }


def command(
    name: Annotated[str, typer.Option(help="Name of the Organization: lowercase letters, digits, hyphens.")] = "local",
    shards: Annotated[
        int | None, typer.Option(help=f"Shards for Mission trees, fixed for good; {shard_count_default} by default.")
    ] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Create the Organization with its shards, first incarnation and first keys; run again, it changes nothing.

    Works on WEAVEHOLD_DATABASE_URL, else on the stack running in the directory, else on the embedded PostgreSQL there.

    \b
    Examples:
      weavehold init
      weavehold init --name acme --shards 64 --json
      WEAVEHOLD_DATABASE_URL=postgresql://app@db/weavehold weavehold init
    """
    keys_directory = Environment().path("WEAVEHOLD_KEYS_DIR", StackDirectory.at(directory).keys)
    with database_to_prepare(directory) as url:
        migrate(url)
        organization = asyncio.run(_initialize(url, name, keys_directory, shards))

    def people(console: Console) -> None:
        for made in organization.created:
            console.print(f"created {made}")
        console.print(
            f"{organization.organization_id}: {organization.shard_count} shards, incarnation "
            f"{organization.incarnation}, keys in {organization.keys_directory}"
        )
        for advised in organization.advice:
            console.print(line(advised))

    print_result(_described(organization), as_json=as_json, people=people)
