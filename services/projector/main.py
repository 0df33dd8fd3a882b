"""The projector process: it keeps the projections of the server's side at the head of all Groups.

Each projection is a file, or a schema in PostgreSQL, that anyone may read and nobody but this process writes, with
durable consumers of its own at the broker; none waits for another (`keep_projection.py`). Losing it, or the consumers,
or the streams, loses nothing: what is missing comes from the authority's history (MWP-FND-023). One process runs at a
time: two on one file would stop each other as soon as one found that the other had moved a Cursor. On PostgreSQL a
second process waits, and goes on where the first one ended.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from contracts.documents.common import ActorType
from contracts.signature import SigningKey
from services.agent.connect import Client
from services.agent.keyring import KeyFault, load_key
from services.agent.send_command import RetryPolicy
from services.feed.trust_anchors import read_anchors
from services.feed.trusted_keys import TrustedKeys
from services.process import broker
from services.process.run import ServiceProcess, run_service
from services.process.settings import Environment, Settings, SettingsFault
from services.projector.keep_projection import KeptProjection
from services.projector.projection_store import read_projection_settings
from services.projector.select_consumers import select_consumers

read_policy: Final = RetryPolicy(deadline_seconds=8.0)
"""One question to the authority; whoever asked asks again."""
silence_seconds_max: Final = 30.0
"""Seconds after which a projection that neither reads nor asks for its delivery is not ready."""


async def _serve(process: ServiceProcess) -> None:
    key = _service_key(process.settings)
    anchors = read_anchors(process.settings)
    environment = Environment()
    where = read_projection_settings(environment, process.settings.keys_directory.parent / "projections")
    consumers = select_consumers(environment)
    async with AsyncExitStack() as stack:
        connection = await broker.connect(
            process.settings.nats_url,
            name="weavehold-projector",
            credentials=process.settings.broker_credentials,
            metrics=process.metrics,
            wait=True,
        )
        stack.push_async_callback(connection.close)
        process.health.add_broker(connection)
        client = Client(connection, process.settings.organization_id, key, policy=read_policy)
        keys = TrustedKeys(client.history, anchors)
        await keys.follow(connection)
        at_work: set[str] = set()
        kept = [KeptProjection(process, client, keys, where, consumer=each, at_work=at_work) for each in consumers]
        await asyncio.wait({_start(process, projection) for projection in kept})


def _start(process: ServiceProcess, projection: KeptProjection) -> asyncio.Task[None]:
    """Keep a projection, with its readiness under its name."""
    process.health.add(f"projection:{projection.name}", projection.store_finding)
    process.health.add(f"delivery:{projection.name}", projection.delivery_finding)
    return process.start_loop(projection.name, projection.run, max_silence_seconds=silence_seconds_max)


def _service_key(settings: Settings) -> SigningKey:
    """The key of a service: only a service is shown whole shards. Raises SettingsFault."""
    variable, remedy = "WEAVEHOLD_SIGNING_KEY_FILE", "Name a service's key, such as the operator's"
    try:
        key = load_key(settings.signing_key_file)
    except KeyFault as fault:
        raise SettingsFault(variable, f"cannot be used: {fault}", remedy) from fault
    if key.principal.type is not ActorType.SERVICE:
        raise SettingsFault(variable, f"is the key of {key.principal.id}, which is no service", remedy)
    return key


def run() -> int:
    """Run the projector until it is told to stop; returns the exit code."""
    return run_service("projector", _serve, signing_key="operator", uses_database=False)


if __name__ == "__main__":
    raise SystemExit(run())
