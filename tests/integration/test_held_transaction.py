"""A transaction that somebody leaves open holds back every vacuum: the outbox stays lean, the relay goes on (OBX-3)."""

import time

from services.process.database import connect
from tests.chaos.held_transaction import assert_outbox_is_lean, count_dead_rows, held_transaction
from tests.relay_rig import Shard, eventually, open_shard, relay_process

waves, events_per_wave = 6, 400
shards = 3
"""Two of Groups and the Organization's."""
beats = 3600
"""An hour of them, one a second."""
hour_of_beats = f"""
DO $$ BEGIN
    FOR beat IN 1..{beats} LOOP UPDATE relay_position SET position = position WHERE shard_id = 1; END LOOP;
END $$
"""


async def relay_waves(shard: Shard, begin: int, end: int) -> None:
    """Waves of Events, one after another, each of which must reach the stream."""
    for wave in range(begin, end):
        await shard.append(events_per_wave, size=500)
        expected = (wave + 1) * events_per_wave

        async def arrived(expected=expected) -> bool:
            state = await shard.state()
            return state is not None and state["last_seq"] == expected

        await eventually(arrived, 60, f"Event {expected} in the stream")


async def test_a_held_transaction_neither_bloats_the_outbox_nor_stops_the_relay(
    database_url, nats_url, organization, tmp_path
):
    """OBX-3: dead rows grow with time, never with Events; the dead rows of a whole hour do not stop a relay."""
    began = time.monotonic()
    async with (
        open_shard(database_url, nats_url, organization) as shard,
        await connect(database_url, name="looking") as looking,
        held_transaction(database_url),
    ):
        await looking.execute("CREATE EXTENSION pgstattuple")
        async with relay_process(database_url, nats_url, organization, tmp_path):
            await relay_waves(shard, 0, waves)
            await assert_outbox_is_lean(looking, time.monotonic() - began, shards)
            await looking.execute(hour_of_beats)
            assert await (await looking.execute(count_dead_rows, ("relay_position",))).fetchone() >= (beats,)
            await relay_waves(shard, waves, waves + 1)
            await shard.relayed()
