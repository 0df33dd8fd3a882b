"""The relay against real servers: everything committed stands at its position in the stream (OBX-1)."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from nats.aio.client import Client

from contracts import subjects
from contracts.delivery import PointerStub, read_stub
from contracts.identifiers import ShardId
from ops.embedded.broker_server import BrokerServer
from ops.init import Organization
from outbox_relay.held_shards import HeldShards
from outbox_relay.relay_shard import RelayState
from outbox_relay.stream import StreamLimits
from services.process import broker
from services.process.database import connect
from tests.relay_rig import Shard, api, eventually, relaying


@pytest.fixture
async def client(nats_url: str) -> AsyncIterator[Client]:
    client = await broker.connect(nats_url, name="test")
    yield client
    await client.close()


@pytest.fixture
async def shard(database_url: str, client: Client, organization: Organization) -> AsyncIterator[Shard]:
    connection = await connect(database_url, name="test")
    yield Shard(connection, client, organization, 1)
    await connection.close()


async def test_every_row_stands_at_its_position_in_order(
    database_url: str, client: Client, organization: Organization, shard: Shard
) -> None:
    """OBX-1: single messages and batches, with the headers that RULE-18 asks for."""
    await shard.append(250)
    async with relaying(database_url, client, organization):
        await shard.relayed()
        for count in (1, 7, 120, 1, 2500):
            await shard.append(count)
        await shard.relayed()
    mark = (await shard.messages())[-1].mark
    assert (mark.relay_epoch, mark.incarnation) == (1, organization.incarnation)


async def test_all_shards_are_relayed_each_to_its_own_stream(
    database_url: str, client: Client, organization: Organization, shard: Shard
) -> None:
    """OBX-1: the Organization shard too, on its literal subject."""
    others = [Shard(shard.connection, client, organization, number) for number in (0, 2)]
    async with relaying(database_url, client, organization):
        for each in (shard, *others):
            await each.append(5)
        for each in (shard, *others):
            await each.relayed()
    assert {m.subject for m in await others[0].messages()} == {
        subjects.event(organization.organization_id, ShardId(0), "")
    }
