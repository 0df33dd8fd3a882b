"""Record a history, or what the readers make of the recorded ones.

python -m tests.histories.record NAME         play the scene of that name and keep its history
python -m tests.histories.record --digests    keep what readers make that are new or at another version
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from contracts.entities import EntityKind, state_digest
from ops.embedded.postgres_server import PostgresServer
from ops.init import initialize
from ops.migrate import migrate
from ops.verify.verify_log import sql
from services.authority.key_book import registered_key
from services.process.database import connect
from tests.authority_rig import authority_on, rows, verified
from tests.builders import test_organization
from tests.conftest import create_database
from tests.consumer_rig import open_sqlite
from tests.histories.crafted import craft_unknown
from tests.histories.recorded import Head, Made, Proof, Reached, Recorded, folder, read_recorded, recorded_names
from tests.histories.replay import consumers_of, difference, fold, project, state_reader
from tests.histories.scenes import Scene, scenes

crafted = {"unknown-kinds-and-marks": craft_unknown}
"""Histories that no authority can have made."""


class Refused(Exception):
    """Nothing was written; the message says why and what to do."""


async def play(name: str, scene: Scene, url: str, keys_directory: Path) -> Recorded:
    """Play a scene in an empty database and read its log. The fold of it must be what the authority stored."""
    connection = await connect(url, name="record")
    try:
        organization = await initialize(connection, name="test", keys_directory=keys_directory, shard_count=2)
    finally:
        await connection.close()
    async with authority_on(url, organization) as authority:
        agent = await scene.play(authority)
    await verified(url, organization)
    recorded = await _read_log(name, scene.about, agent.principal.id, url)
    stored = await _stored_state(url, recorded)
    if (found := fold(recorded).groups) != stored:
        raise Refused(f"the log of {name} folds to {found}, but the authority stored {stored}")
    return recorded


async def _read_log(name: str, about: str, agent_id: str, url: str) -> Recorded:
    logged = await rows(
        url,
        "SELECT group_id, incarnation, sequence, encode(chain_hash, 'hex'), event FROM event_log "
        "WHERE group_id <> '' ORDER BY shard_id, position",
    )
    heads = {group_id: Head(incarnation, sequence, chain) for group_id, incarnation, sequence, chain, _ in logged}
    asked = {"organization_id": test_organization}
    connection = await connect(url, name="record")
    try:
        keys = [registered_key(row) for row in await (await connection.execute(sql.read_keys, asked)).fetchall()]
    finally:
        await connection.close()
    services = tuple(key for key in keys if key.principal.type.value == "service")
    proof = Proof(about, test_organization, agent_id, services, heads)
    return Recorded(name, proof, tuple(bytes(row[-1]) for row in logged))


async def _stored_state(url: str, recorded: Recorded) -> dict[str, Reached]:
    """The digest of each Group's entities as the authority wrote them."""
    stored = await rows(url, "SELECT group_id, kind, entity_id, revision, body FROM entity")
    return {
        group_id: Reached(
            head.sequence,
            state_digest((EntityKind(row[1]), row[2], row[3], bytes(row[4])) for row in stored if row[0] == group_id),
        )
        for group_id, head in recorded.proof.heads.items()
    }


def _record(name: str) -> None:
    """Make a history and keep it with what the readers make of it."""
    if name in recorded_names():
        raise Refused(f"{folder / name} is recorded: what was signed once is never recorded anew. Give a new name")
    if name in crafted:
        recorded = crafted[name]()
    elif name in scenes:
        with tempfile.TemporaryDirectory(prefix="weavehold-record-") as made:
            directory = Path(made)
            directory.chmod(0o711)
            server = PostgresServer(directory / "postgres", fsync=False)
            server.start()
            try:
                url = create_database(server, "weavehold_recorded")
                migrate(url)
                recorded = asyncio.run(play(name, scenes[name], url, directory / "keys"))
            finally:
                server.stop()
    else:
        raise Refused(f"there is no scene {name!r}; there are {', '.join([*scenes, *crafted])}")
    made = asyncio.run(_made(recorded))
    recorded.write()
    recorded.expect(made)


async def _made(recorded: Recorded) -> dict[str, Made]:
    """What every reader makes of a history now."""
    made = {state_reader: fold(recorded)}
    with tempfile.TemporaryDirectory(prefix="weavehold-record-") as directory:
        for consumer in consumers_of(recorded):
            store = await open_sqlite(Path(directory) / consumer.name, consumer)
            try:
                made[consumer.name] = await project(store, recorded)
            finally:
                await store.close()
    return made


def _record_digests() -> None:
    """Keep what readers make of the recorded histories. What one version makes is never recorded anew."""
    for name in recorded_names():
        recorded = read_recorded(name)
        expected, made = recorded.expected(), asyncio.run(_made(recorded))
        for reader, found in made.items():
            before = expected.get(reader)
            fault = difference(name, reader, before, found)
            if fault is not None and before is not None and before.version == found.version:
                raise Refused(fault)
            if before is not None and found.version < before.version:
                raise Refused(f"{reader} is at version {found.version}, but {name} was read by {before.version} before")
            if before is None or before.version != found.version:
                sys.stdout.write(f"{name}: {reader} version {found.version} is written down\n")
        recorded.expect(made)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help=", ".join([*scenes, *crafted]))
    parser.add_argument("--digests", action="store_true", help="record what readers make, not a history")
    asked = parser.parse_args()
    if asked.digests == (asked.name is not None):
        parser.error("give either a name or --digests")
    try:
        if asked.digests:
            _record_digests()
        else:
            _record(asked.name)
    except Refused as fault:
        sys.exit(str(fault))


if __name__ == "__main__":
    main()
