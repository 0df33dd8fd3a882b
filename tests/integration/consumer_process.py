"""A consumer in a process of its own, that kills itself with SIGKILL at a named point.

Arguments: NATS URL, folder (with `log`, the history), consumer's name, point (`before-commit` or `after-commit`), kind
of store, URL of its database.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace
from nats.aio.client import Client

from projections.apply_event import Applied
from projections.listing import listed_consumers
from projections.projection import Projection
from projections.run_consumer import ConsumerRun
from projections.store import ProjectionStore, Transaction
from services.process.broker import connect
from tests.builders import test_organization
from tests.consumer_rig import Provider, patient
from tests.history_double import HistoryDouble
from tests.mission_history import agent_id
from tests.store_kinds import StoreKind, store_kinds

batch_events = 8
"""Messages in one pull, so that some batches are committed before the deadly one."""
kill_at_sequence = 20
"""The Event whose rows are never committed, or whose commit is the last."""


def die() -> None:
    """End as a power cut ends: nothing is flushed, closed or answered."""
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(store: ProjectionStore) -> ProjectionStore:
    """The store, whose process dies inside the transaction, when all its work is done."""
    inner = store.transaction

    async def dying[T](work: Callable[[Transaction], T]) -> T:
        def to_the_end(transaction: Transaction) -> T:
            result = work(transaction)
            if any(cursor.sequence >= kill_at_sequence for cursor in transaction.cursors()):
                die()
            return result

        return await inner(to_the_end)

    store.transaction = dying  # type: ignore[method-assign]
    return store


async def main(url: str, folder: Path, name: str, point: str, kind: StoreKind) -> None:
    """Consume until killed."""
    consumer = next(each for each in listed_consumers(agent_id) if each.name == name)

    def on_applied(applied: Applied) -> None:
        if point == "after-commit" and any(cursor.sequence >= kill_at_sequence for cursor in applied.cursors):
            die()

    source = HistoryDouble.load(folder / "log")
    client: Client = await connect(url, name="consumer-process")
    store = await kind.open(folder / "live", consumer)
    projection = Projection(deadly(store) if point == "before-commit" else store, on_applied=on_applied)
    provider = Provider(client, sorted(source.groups))
    small = replace(patient, pull=replace(patient.pull, batch=batch_events))
    await ConsumerRun(client, test_organization, [projection], provider, source, bounds=small).run()


if __name__ == "__main__":
    kind = store_kinds[sys.argv[5]](sys.argv[6])
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], kind))
