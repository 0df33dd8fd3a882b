"""`weavehold init`: one Organization, its shards, first incarnation and first keys; idempotent (RULE-29, RULE-32)."""

import asyncio
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.documents.common import Actor, ActorType
from contracts.key_registry import RegistryEvidence
from contracts.signature import SigningKey
from ops import init as init_module
from ops.folder_lock import alone_in
from ops.init import (
    FirstKeys,
    InitializationFault,
    Organization,
    UnusableChoice,
    first_principals,
    initialize,
    key_file,
    only_organization,
    organization_id,
    write_key_file,
)
from services.authority.read_evidence import read_evidence
from services.feed.trust_anchors import load_anchors
from services.process.database import Connection, connect


async def counts(connection: Connection) -> dict[str, int]:
    found = {}
    for table in ("organization", "shard", "incarnation", "signing_key"):
        row = await (await connection.execute(f"SELECT count(*) FROM {table}")).fetchone()
        assert row is not None
        found[table] = row[0]
    return found


@pytest.fixture
async def connection(database_url: str):
    made = await connect(database_url, name="test")
    yield made
    await made.close()


async def test_init_makes_everything_once(connection: Connection, tmp_path: Path) -> None:
    """RULE-29: shards 0…S, incarnation 1, four keys registered and written with mode 0600; again: nothing changes."""
    keys_directory = tmp_path / "keys"
    made = await initialize(connection, name="acme", keys_directory=keys_directory, shard_count=3)
    assert made.organization_id == "urn:weavehold:organization:acme"
    assert await counts(connection) == {"organization": 1, "shard": 4, "incarnation": 1, "signing_key": 4}
    for name in first_principals:
        file = key_file(keys_directory, name)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert SigningKey.from_file(file).key_id == getattr(made.keys, name).key_id
    pinned = load_anchors(keys_directory / "anchors.json")
    registered = await read_registered(connection, made)
    assert pinned.of(made.organization_id) == registered
    again = await initialize(connection, name="acme", keys_directory=keys_directory)
    assert again.created == ()
    assert load_anchors(keys_directory / "anchors.json") == pinned
    assert (again.incarnation, again.shard_count) == (made.incarnation, 3)
    assert [key.key_id for key in again.keys] == [key.key_id for key in made.keys]
    assert await counts(connection) == {"organization": 1, "shard": 4, "incarnation": 1, "signing_key": 4}


async def test_another_key_of_the_authority_is_to_be_handed_on(connection: Connection, tmp_path: Path) -> None:
    """RULE-29: who has to be told is said when the key is made, and also that old anchors are in the way of it."""
    first = await initialize(connection, name="acme", keys_directory=tmp_path)
    assert first.advice == ()
    anchors, authority = tmp_path / "anchors.json", key_file(tmp_path, "authority")
    authority.unlink()
    [kept] = (await initialize(connection, name="acme", keys_directory=tmp_path)).advice
    assert f"{anchors} still pins the key before: move it away" in kept
    authority.unlink()
    anchors.unlink()
    [told] = (await initialize(connection, name="acme", keys_directory=tmp_path)).advice
    assert f"hand the new {anchors} to every Projector and Worker and restart them" in told
    assert (await initialize(connection, name="acme", keys_directory=tmp_path)).advice == ()


async def read_registered(connection: Connection, made: Organization) -> RegistryEvidence:
    """The registry's evidence of the authority's key alone."""
    evidence = await read_evidence(connection, made.organization_id)
    mine = tuple(binding for binding in evidence.bindings if binding.key_id == made.keys.authority.key_id)
    return replace(evidence, bindings=mine)


async def test_unusable_trust_anchors_are_named(connection: Connection, tmp_path: Path) -> None:
    """OPS-2: a damaged file is neither overwritten nor passed over."""
    (tmp_path / "anchors.json").write_text("{")
    with pytest.raises(InitializationFault, match=r"anchors\.json cannot be used"):
        await initialize(connection, name="acme", keys_directory=tmp_path)
    (tmp_path / "anchors.json").unlink()
    assert "trust anchors of" in (await initialize(connection, name="acme", keys_directory=tmp_path)).created[-1]


async def test_what_a_crash_left_is_taken_up(connection: Connection, tmp_path: Path) -> None:
    """RULE-29: key files without rows (a crash before the commit) are registered, not made anew."""
    left = SigningKey.generate(first_principals["operator"])
    write_key_file(key_file(tmp_path, "operator"), left)
    made = await initialize(connection, name="acme", keys_directory=tmp_path)
    assert made.keys.operator.key_id == left.key_id
    assert not list(tmp_path.glob("*.new"))


async def test_a_failure_leaves_nothing_in_the_database(connection: Connection, tmp_path: Path) -> None:
    """RULE-29: one transaction: a key that cannot be registered takes the Organization with it."""
    await connection.execute("ALTER TABLE signing_key ADD CHECK (principal_type <> 'human')")
    with pytest.raises(Exception, match="signing_key"):
        await initialize(connection, name="acme", keys_directory=tmp_path)
    assert await counts(connection) == {"organization": 0, "shard": 0, "incarnation": 0, "signing_key": 0}


async def test_several_at_once_make_one(database_url: str, tmp_path: Path) -> None:
    """RULE-29: concurrent starts agree."""
    connections = [await connect(database_url, name="test") for _ in range(4)]
    try:
        made = await asyncio.gather(
            *(initialize(each, name="acme", keys_directory=tmp_path, shard_count=2) for each in connections)
        )
        assert len({each.incarnation for each in made}) == 1
        assert await counts(connections[0]) == {"organization": 1, "shard": 3, "incarnation": 1, "signing_key": 4}
    finally:
        for each in connections:
            await each.close()


def prepare_keys(directory: Path) -> FirstKeys:
    keys = FirstKeys(**{name: SigningKey.generate(principal) for name, principal in first_principals.items()})
    for name in first_principals:
        write_key_file(key_file(directory, name), getattr(keys, name))
    return keys


async def test_two_organizations_live_side_by_side(connection: Connection, tmp_path: Path) -> None:
    """RULE-32: the same key files and shard numbers under two Organizations do not meet."""
    first = await initialize(connection, name="one", keys_directory=tmp_path, shard_count=1)
    second = await initialize(connection, name="two", keys_directory=tmp_path, shard_count=2)
    assert first.incarnation != second.incarnation
    pinned = load_anchors(tmp_path / "anchors.json")
    assert [each.organization_id for each in pinned.anchors] == [first.organization_id, second.organization_id]
    assert await counts(connection) == {"organization": 2, "shard": 5, "incarnation": 2, "signing_key": 8}


def init_in_a_process_of_its_own(url: str, name: str, keys_directory: Path) -> Organization:
    """`weavehold init` on an event loop of its own, as another process would run it."""

    async def run() -> Organization:
        made = await connect(url, name="test")
        try:
            return await initialize(made, name=name, keys_directory=keys_directory, shard_count=1)
        finally:
            await made.close()

    return asyncio.run(run())


async def test_two_organizations_made_at_once_in_one_folder(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RULE-29, TRU-2: neither overwrites a key file of the other, nor takes its trust anchors away again."""
    together = threading.Barrier(2)

    def in_step[**P, T](act: Callable[P, T]) -> Callable[P, T]:
        """Do it, and go on only when both have: each has then looked before the other wrote."""

        def wait(*args: P.args, **named: P.kwargs) -> T:
            try:
                return act(*args, **named)
            finally:
                with suppress(threading.BrokenBarrierError):
                    together.wait(0.3)
                together.reset()

        return wait

    monkeypatch.setattr(init_module, "load_anchors", in_step(load_anchors))
    monkeypatch.setattr(init_module, "key_file", in_step(key_file))
    made = await asyncio.gather(
        *(asyncio.to_thread(init_in_a_process_of_its_own, database_url, name, tmp_path) for name in ("one", "two"))
    )
    anchors = load_anchors(tmp_path / "anchors.json")
    assert {each.organization_id for each in anchors.anchors} == {each.organization_id for each in made}
    for name in first_principals:
        left = SigningKey.from_file(key_file(tmp_path, name)).key_id
        assert {getattr(each.keys, name).key_id for each in made} == {left}


async def test_who_keeps_the_folder_to_himself_is_named_after_a_while(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OPS-2: init waits for a rotation, not for ever; nothing was made."""
    monkeypatch.setattr(init_module, "folder_wait_seconds", 0.2)
    with alone_in(tmp_path), pytest.raises(InitializationFault, match="a rotation of keys"):
        await initialize(connection, name="acme", keys_directory=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert await counts(connection) == {"organization": 0, "shard": 0, "incarnation": 0, "signing_key": 0}


async def test_the_number_of_shards_is_fixed(connection: Connection, tmp_path: Path) -> None:
    """RULE-29: another number is refused with both numbers in the message."""
    await initialize(connection, name="acme", keys_directory=tmp_path, shard_count=2)
    with pytest.raises(InitializationFault, match="has 2 shards, not 3"):
        await initialize(connection, name="acme", keys_directory=tmp_path, shard_count=3)


async def test_a_key_file_of_somebody_else_is_refused(connection: Connection, tmp_path: Path) -> None:
    """RULE-29: a wrong or damaged key file is named and left alone."""
    stranger = SigningKey.generate(Actor(type=ActorType.HUMAN, id="urn:weavehold:human:stranger"))
    write_key_file(key_file(tmp_path, "authority"), stranger)
    with pytest.raises(InitializationFault, match="belongs to urn:weavehold:human:stranger"):
        await initialize(connection, name="acme", keys_directory=tmp_path)
    key_file(tmp_path, "authority").write_text("{}")
    with pytest.raises(InitializationFault, match=r"authority\.json cannot be used"):
        await initialize(connection, name="acme", keys_directory=tmp_path)


async def test_a_key_id_of_another_principal_is_refused(connection: Connection, tmp_path: Path) -> None:
    """RULE-29: a registered key is never bound anew."""
    keys = await asyncio.to_thread(prepare_keys, tmp_path)
    await initialize(connection, name="acme", keys_directory=tmp_path)
    await connection.execute("ALTER TABLE signing_key DISABLE TRIGGER USER")
    await connection.execute(
        "UPDATE signing_key SET principal_id = 'urn:other' WHERE key_id = %s", [keys.registry.key_id]
    )
    with pytest.raises(InitializationFault, match="is registered for another Principal"):
        await initialize(connection, name="acme", keys_directory=tmp_path)


@pytest.mark.parametrize("name", ["", "Acme", "a b", "-a", "a-", "a" * 64, "ä"])
def test_an_organization_name_is_simple(name: str) -> None:
    with pytest.raises(UnusableChoice, match="cannot be used"):
        organization_id(name)


async def test_without_a_name_it_is_the_organization_that_is_there(connection: Connection, tmp_path: Path) -> None:
    """OPS-2: `weavehold up` on the data of another Organization does not found a second one beside it."""
    assert await only_organization(connection) == "local"
    await initialize(connection, name="demo", keys_directory=tmp_path / "demo", shard_count=1)
    assert await only_organization(connection) == "demo"
    await initialize(connection, name="other", keys_directory=tmp_path / "other", shard_count=1)
    with pytest.raises(UnusableChoice, match="demo, other"):
        await only_organization(connection)
