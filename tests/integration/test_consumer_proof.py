"""A consumer believes the authority and nobody who merely can write to the broker (TRU-1, TRU-2, NEW-5).

The stream, the broker and the key requests are real; the history that repairs is a double, as in the behaviour suite.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from nats.aio.msg import Msg

from contracts import subjects
from contracts.signature import SigningKey
from projections.arrival import read_arrival
from projections.mission_board.consumer import MissionBoard
from projections.proof import SignatureProof
from services.agent.connect import Client
from services.agent.send_command import RetryPolicy
from services.feed.trust_anchors import load_anchors
from services.feed.trusted_keys import TrustedKeys
from services.process.broker import connect
from tests.builders import BuiltEvent, build_event, later, revoke_key, signing_key, start_time
from tests.consumer_rig import bounds, until
from tests.integration.test_consumer_behaviour import World, one, two
from tests.mission_history import authority_key, mission_history
from tests.reads_rig import PlantedOrganization, planted, serving
from tests.store_kinds import SqliteFiles
from tests.trust_rig import answer, authority, binding, stranger

impatient = RetryPolicy(deadline_seconds=1.0, reply_timeout_seconds=0.5)
operator = signing_key("operator", "service")
ended = SigningKey("urn:weavehold:key:ended", authority, b"e" * 32)
as_authority = {"acceptedBy": {"type": "service", "id": authority.id}}


@asynccontextmanager
async def watching(org: PlantedOrganization, nats_url: str, folder: Path) -> AsyncIterator[World]:
    """A board at work on a stream, that knows of the authority what `weavehold init` pinned."""
    await org.add_key(authority_key)
    client = await connect(nats_url, name="consumer")
    world = World(client, folder, SqliteFiles(), MissionBoard)
    world.bounds = replace(bounds, heads_seconds=1.0)
    evidence = load_anchors(org.organization.keys_directory / "anchors.json").of(org.id)
    assert evidence is not None
    keys = TrustedKeys(Client(client, org.id, org.organization.keys.operator, policy=impatient).history, evidence)
    await keys.follow(client)
    world.proof = SignatureProof(keys)
    await world.stream.create()
    await world.open()
    try:
        yield world
    finally:
        await world.close()
        await client.close()


async def reaches(world: World, group_id: str, sequence: int) -> bool:
    """Whether a Group is applied exactly so far."""
    cursor = await world.projection.cursor(group_id)
    return cursor is not None and cursor.sequence == sequence


def forgery(key: SigningKey, previous: BuiltEvent, **members: object) -> BuiltEvent:
    """An Event that continues a history in every way but its signature."""
    return build_event("message.posted", {"message": {}}, key, group_id=one, previous=previous.mark, **members)


forgeries = {
    "a key that is unknown": (lambda before: forgery(stranger, before), "no key urn:weavehold:key:stranger"),
    "another service's key": (lambda before: forgery(operator, before), "which does not accept Events"),
    "an Agent's key": (lambda before: forgery(signing_key("worker"), before), "which does not accept Events"),
    "a key of the wrong Principal": (lambda before: forgery(operator, before, **as_authority), "is bound to"),
    "a key revoked before": (lambda before: forgery(ended, before), "is not valid at"),
    "the authority's key by name": (
        lambda before: forgery(SigningKey(authority_key.key_id, authority, b"n" * 32), before),
        "the signature is not one of",
    ),
}


@pytest.mark.parametrize(("forge", "words"), forgeries.values(), ids=forgeries.keys())
async def test_a_forged_event_is_never_applied(
    database_url: str, nats_url: str, tmp_path: Path, forge, words: str
) -> None:
    """TRU-1, NEW-5: right chain, wrong signature: its Group waits for the truth, others flow on; then it recovers."""
    history = mission_history(one)
    async with (
        planted(database_url, tmp_path) as org,
        serving(database_url, nats_url, org),
        watching(org, nats_url, tmp_path) as world,
    ):
        for key in (ended, operator, signing_key("worker")):
            await org.add_key(key)
        await revoke_key(org.connection, ended.key_id, later(start_time, 1))
        reasons: list[str] = []
        world.on_applied = lambda applied: reasons.extend(unproven.reason for unproven in applied.unproven)
        await world.close()
        await world.open()
        async with world.running():
            await world.accept(history[:10])
            await world.settle()
            # Nothing true follows yet: what cannot be proven is as if it never came.
            await world.stream.publish([forge(history[9])])
            await world.accept(mission_history(two))
            await world.settle()
            assert await reaches(world, one, 10)
            # The truth comes by delivery, and after another forgery by replay.
            await world.accept(history[10:12])
            await world.settle()
            world.source.add(history[12:])
            await world.stream.publish([forge(history[11])])
            await world.settle()
    assert world.projection.progress.unproven >= 2
    assert all(words in reason for reason in reasons)
    assert (world.projection.progress.forks, world.projection.progress.stops) == (0, 0)


async def test_a_forgery_behind_true_events_in_one_batch(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """NEW-5: what the newest signature does not prove is not applied; the true part of the batch comes by replay."""
    history = mission_history(one)
    async with (
        planted(database_url, tmp_path) as org,
        serving(database_url, nats_url, org),
        watching(org, nats_url, tmp_path) as world,
    ):
        await world.accept(history[:10])
        await world.stream.publish([forgery(stranger, history[9])])
        async with world.running():
            await world.settle()
            await world.accept(history[10:])
            await world.settle()


async def test_an_unreachable_authority_is_waited_for(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """TRU-2: nothing is believed and nothing given up while a key cannot be asked for; then all of it is applied."""
    async with planted(database_url, tmp_path) as org, watching(org, nats_url, tmp_path) as world, world.running():
        await world.accept(mission_history(one))
        await until(lambda: has_waited(world))
        assert await world.projection.cursors() == []
        async with serving(database_url, nats_url, org):
            await world.accept(mission_history(two))
            await until(lambda: settled(world))
            await world.settle()


async def has_waited(world: World, times: int = 2) -> bool:
    """Whether Events were left unproven so often."""
    return world.projection.progress.unproven >= times


async def settled(world: World) -> bool:
    """Whether both Groups are at their heads."""
    cursors = {cursor.group_id: cursor for cursor in await world.projection.cursors()}
    return all(cursors.get(group_id) == events[-1][1] for group_id, events in world.source.groups.items())


async def test_forged_answers_about_keys_are_not_believed(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """TRU-2: whoever answers first with keys of his own is not the authority; once he is gone, all goes on."""
    history = mission_history(one)
    async with (
        planted(database_url, tmp_path) as org,
        watching(org, nats_url, tmp_path) as world,
    ):
        answered = 0

        async def forge(message: Msg) -> None:
            nonlocal answered
            asked = msgspec.json.decode(message.data)
            lie = answer(stranger, [binding(stranger)], to=asked["actionId"], answered_at=asked["issuedAt"])
            answered += 1
            await message.respond(msgspec.json.encode(lie))

        forging = await world.client.subscribe(subjects.query(org.id), cb=forge)
        async with world.running():
            world.source.add(history)
            await world.stream.publish(history[:10])
            await world.stream.publish([forgery(stranger, history[9])])
            await until(lambda: has_waited(world))
            assert answered > 0
            assert await world.projection.cursors() == []
            await forging.unsubscribe()
            async with serving(database_url, nats_url, org):
                await until(lambda: settled(world))
                await world.settle()


async def is_doubted(world: World, built: BuiltEvent) -> bool:
    """Whether an Event proves nothing by what is known of keys now."""
    assert world.proof is not None
    return world.proof.fault_of(read_arrival(msgspec.Raw(built.raw))) is not None


async def test_a_revocation_is_heard_of(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """TRU-2: once a revocation is announced, Events that its key signs from then on are not applied."""
    history = mission_history(one)
    async with (
        planted(database_url, tmp_path) as org,
        serving(database_url, nats_url, org),
        watching(org, nats_url, tmp_path) as world,
        world.running(),
    ):
        await world.accept(history[:10])
        await world.settle()
        assert not await is_doubted(world, history[10])
        await revoke_key(org.connection, authority_key.key_id, history[9].event.occurred_at)
        await world.client.publish(subjects.keys_changed(org.id))
        await world.client.flush()
        # Proven until the announcement has arrived, whether or not the key was asked for again since.
        await until(lambda: is_doubted(world, history[10]))
        await world.stream.publish(history[10:])
        await until(lambda: has_waited(world, 1))
        assert await reaches(world, one, 10)
