"""A consumer that finds a fork and kills itself with SIGKILL in the middle of the refill.

Arguments: NATS URL, folder (with `log`, the history that is there now), kind of store, URL of its database. Its store
holds a history that was given up.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from nats.aio.client import Client

import projections.fill_gap
from projections.apply_event import Applied
from projections.projection import Projection
from projections.run_consumer import ConsumerRun
from services.process.broker import connect
from tests.builders import test_organization
from tests.consumer_rig import Provider, bounds
from tests.history_double import HistoryDouble
from tests.simulation.ledger import Ledger
from tests.store_kinds import StoreKind, store_kinds

batch_events = 5
"""Events of one transaction of the refill."""
kill_at_sequence = 15


async def main(url: str, folder: Path, kind: StoreKind) -> None:
    """Consume until killed: a refill begins at 1, which delivery does not."""
    projections.fill_gap.replay_batch_events = batch_events
    projections.fill_gap.replay_page_events_max = batch_events
    forked = False

    def on_applied(applied: Applied) -> None:
        nonlocal forked
        for cursor in applied.cursors:
            forked = forked or cursor.sequence == batch_events
            if forked and cursor.sequence >= kill_at_sequence:
                os.kill(os.getpid(), signal.SIGKILL)

    source = HistoryDouble.load(folder / "log")
    client: Client = await connect(url, name="refill-process")
    projection = Projection(await kind.open(folder / "live", Ledger("forks")), on_applied=on_applied)
    await ConsumerRun(
        client, test_organization, [projection], Provider(client, sorted(source.groups)), source, bounds=bounds
    ).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), store_kinds[sys.argv[3]](sys.argv[4])))
