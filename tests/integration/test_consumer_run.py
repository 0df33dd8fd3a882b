"""A run of consumers beside what the behaviour suite forces: shared delivery, outages, changing Memberships."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from nats.aio.client import Client

from projections.delivery import DeliveryUnavailable, Provisioned
from projections.history import HistoryUnavailable
from projections.listing import listed_consumers
from projections.projection import Projection
from projections.run_consumer import ConsumerRun, RunBounds
from services.process.broker import connect
from tests.builders import test_organization
from tests.consumer_rig import (
    Acknowledged,
    Provider,
    Stream,
    bounds,
    digests,
    open_sqlite,
    reached,
    rebuilt,
    running,
    until,
)
from tests.history_double import HistoryDouble
from tests.mission_history import agent_id, mission_history

one, two = "urn:test:group:one", "urn:test:group:two"


@pytest.fixture
async def client(nats_url: str) -> AsyncIterator[Client]:
    connected = await connect(nats_url, name="test")
    yield connected
    await connected.close()


@pytest.fixture
async def stream(client: Client) -> Stream:
    made = Stream(client)
    await made.create()
    return made


@pytest.fixture
async def projections(tmp_path: Path) -> AsyncIterator[list[Projection]]:
    """All consumers, each on a store of its own."""
    opened = [Projection(await open_sqlite(tmp_path / each.name, each)) for each in listed_consumers(agent_id)]
    yield opened
    for projection in opened:
        await projection.store.close()


def run_of(
    client: Client,
    projections: list[Projection],
    provider: Provider,
    source: HistoryDouble,
    *,
    acknowledged: Acknowledged | None = None,
    cadence: RunBounds = bounds,
) -> ConsumerRun:
    return ConsumerRun(
        client,
        test_organization,
        projections,
        provider,
        source,
        acknowledger=acknowledged or Acknowledged(),
        bounds=cadence,
    )


async def all_reached(projections: list[Projection], source: HistoryDouble) -> bool:
    return all([await reached(projection, source) for projection in projections])


async def test_projections_share_one_delivery(
    client: Client, stream: Stream, projections: list[Projection], tmp_path: Path
) -> None:
    """A batch is acknowledged once every projection has committed it; each has its own Cursors."""
    source = HistoryDouble(mission_history(one))
    acknowledged = Acknowledged()
    async with running(run_of(client, projections, Provider(client, [one]), source, acknowledged=acknowledged)):
        await stream.publish(mission_history(one))
        await until(lambda: all_reached(projections, source))

        async def reported() -> bool:
            return acknowledged.cursors.get(one) == source.groups[one][-1][1]

        await until(reported)
    for projection in projections:
        fresh = tmp_path / f"rebuilt-{projection.name}"
        consumer = projection.store.consumer
        assert await digests(projection) == await rebuilt(open_sqlite, fresh, consumer, source, {})


async def test_a_new_membership_is_followed(client: Client, stream: Stream, projections: list[Projection]) -> None:
    """RULE-25: told that Memberships changed, the run asks for its delivery again and reads the new Group too."""
    source = HistoryDouble(mission_history(one))
    provider = Provider(client, [one])
    run = run_of(client, projections, provider, source)
    async with running(run):
        await stream.publish(mission_history(one))
        await until(lambda: all_reached(projections, source))
        source.add(mission_history(two))
        await stream.publish(mission_history(two))
        provider.groups.append(two)
        run.refresh()
        await until(lambda: all_reached(projections, source))


async def test_nothing_answers_at_the_start(client: Client, stream: Stream, projections: list[Projection]) -> None:
    """MWP-WRK-020: without provider and source the run waits, bounded and jittered, and goes on when they come."""
    source = HistoryDouble(mission_history(one))
    source.available = False

    class Away(Provider):
        away = True

        async def provision(self) -> Provisioned:
            if self.away:
                self.asked += 1
                raise DeliveryUnavailable("away")
            return await super().provision()

    provider = Away(client, [one])
    async with running(run_of(client, projections, provider, source)):

        async def tried() -> bool:
            return provider.asked >= 3

        await until(tried)
        provider.away = False
        await stream.publish(mission_history(one)[:10])

        async def delivered() -> bool:
            cursors = [await projection.cursor(one) for projection in projections]
            return all(cursor is not None and cursor.sequence == 10 for cursor in cursors)

        await until(delivered)
        source.available = True
        await until(lambda: all_reached(projections, source))


async def test_a_source_that_is_away_does_not_hold_up_other_groups(
    client: Client, stream: Stream, projections: list[Projection]
) -> None:
    """A gap that cannot be filled yet waits alone; the batch is acknowledged, since the store knows what is missing."""
    source = HistoryDouble(mission_history(one), mission_history(two))
    async with running(run_of(client, projections, Provider(client, [one, two]), source)):
        await until(lambda: all_reached(projections, source))
        source.available = False
        for projection in projections:
            await projection.store.transaction(lambda transaction: transaction.reset_group(one))
        await stream.publish(mission_history(one)[20:])
        await stream.publish(mission_history(two))

        async def acknowledged() -> bool:
            return await stream.unacknowledged() == 0

        await until(acknowledged)
        last = len(mission_history(one))
        assert [await projection.heads_ahead() for projection in projections] == [{one: last}] * len(projections)
        source.available = True
        await until(lambda: all_reached(projections, source))


async def test_acknowledging_never_holds_up_applying(
    client: Client, stream: Stream, projections: list[Projection]
) -> None:
    """MWP-WRK-030: an authority that takes no acknowledgement slows nothing; it is told again later."""

    class Slow(Acknowledged):
        failures = 2

        async def acknowledge(self, cursor: object) -> None:
            await asyncio.sleep(0.05)
            if self.failures:
                self.failures -= 1
                raise HistoryUnavailable("not now")
            self.cursors[one] = cursor  # type: ignore[assignment]

    source = HistoryDouble(mission_history(one))
    slow = Slow()
    cadence = replace(bounds, acknowledge_seconds=0.05)
    async with running(
        run_of(client, projections, Provider(client, [one]), source, acknowledged=slow, cadence=cadence)
    ):
        await stream.publish(mission_history(one))
        await until(lambda: all_reached(projections, source))

        async def reported() -> bool:
            return slow.cursors.get(one) == source.groups[one][-1][1]

        await until(reported)


async def test_a_broken_store_ends_the_run(client: Client, stream: Stream, projections: list[Projection]) -> None:
    """A store's own error is not survived in silence: the run ends and the process starts anew."""
    source = HistoryDouble(mission_history(one))
    task = asyncio.create_task(run_of(client, projections, Provider(client, [one]), source).run())
    await until(lambda: all_reached(projections, source))
    source.add(mission_history(two))

    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    projections[0].apply = fail  # type: ignore[method-assign]
    await stream.publish(mission_history(one))
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(task, 10)
    assert raised.group_contains(OSError, match="disk")
