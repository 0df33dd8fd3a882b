"""The relay process: `run()` is its whole life, from settings to exit code."""

import sys
from contextlib import AsyncExitStack
from typing import Final

from outbox_relay.held_shards import HeldShards
from outbox_relay.stream import StreamLimits
from services.process.broker import connect
from services.process.database import open_pool
from services.process.health import Heartbeat
from services.process.run import ServiceProcess, run_service
from services.process.settings import Environment
from services.process.unique import default_instance, holder_name

connections_max: Final = 8
"""Connections to the database that the shards of one process share."""
silence_seconds_max: Final = 30.0
"""Seconds after which a beat that has not come back counts as dead."""


def read_limits(environment: Environment) -> StreamLimits:
    """What the broker keeps, for streams that are made from now on. Raises SettingsFault."""
    return StreamLimits(
        max_age_seconds=environment.integer("WEAVEHOLD_STREAM_MAX_AGE_SECONDS", 0, minimum=0, maximum=3_153_600_000),
        max_bytes=environment.integer("WEAVEHOLD_STREAM_MAX_BYTES", -1, minimum=-1, maximum=2**53),
        replicas=environment.integer("WEAVEHOLD_STREAM_REPLICAS", 1, minimum=1, maximum=5),
    )


async def serve(process: ServiceProcess) -> None:
    """Relay this process's share of the Organization's shards until it is asked to stop."""
    settings, environment = process.settings, Environment()
    limits = read_limits(environment)
    async with AsyncExitStack() as opened:
        pool = await open_pool(settings.database_url, name="weavehold-relay", maximum=connections_max, wait=False)
        opened.push_async_callback(pool.close)
        process.health.add_database(pool)
        client = await connect(
            settings.nats_url,
            name="weavehold-relay",
            credentials=settings.broker_credentials,
            metrics=process.metrics,
            wait=True,
        )
        opened.push_async_callback(client.close)
        process.health.add_broker(client)
        shards = HeldShards(
            pool=pool,
            client=client,
            organization_id=settings.organization_id,
            holder=holder_name(environment.text("WEAVEHOLD_INSTANCE", default_instance("relay"))),
            limits=limits,
            metrics=process.metrics,
        )
        process.health.add("shards", shards.finding)

        async def relay(heartbeat: Heartbeat) -> None:
            await shards.run(process.stopping, heartbeat.beat)

        await process.start_loop("relay", relay, max_silence_seconds=silence_seconds_max)


def run() -> int:
    """Run the relay to its end: 0 stopped as asked, 1 fault, 2 unusable settings."""
    return run_service("relay", serve)


if __name__ == "__main__":
    sys.exit(run())
