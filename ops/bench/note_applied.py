"""A projection as a process of its own that notes when what it applied was committed.

    python -m ops.bench.note_applied NATS_URL ORGANIZATION_ID KEYS_DIRECTORY DIRECTORY

It is what the projector process runs, with the mission board in a SQLite file. DIRECTORY/applied grows by a line for
each Cursor after each commit: seconds of the machine's clock, sequence, Group ID.
"""

import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import uvloop

from ops.bench.follow_applied import applied_name
from projections.apply_event import Applied
from projections.mission_board.consumer import MissionBoard
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.run_consumer import ConsumerRun
from projections.store.sqlite import SqliteStore
from services.agent.connect import connect
from services.agent.keyring import load_key
from services.feed.signed_history import SignedHistory
from services.feed.trust_anchors import anchors_file_name, load_anchors
from services.feed.trusted_keys import TrustedKeys
from services.projector.shard_delivery import ShardDelivery

service_key: Final = "operator.json"


async def follow(nats_url: str, organization_id: str, keys: Path, directory: Path) -> None:
    """Apply and note until cancelled. Raises what a projector raises."""
    anchors = load_anchors(keys / anchors_file_name).of(organization_id)
    if anchors is None:
        raise RuntimeError(f"{keys} has no anchors of {organization_id}")
    async with AsyncExitStack() as closing:
        client = await closing.enter_async_context(connect(nats_url, organization_id, load_key(keys / service_key)))
        store = await SqliteStore.open(directory / "board.sqlite", MissionBoard(), organization_id)
        closing.push_async_callback(store.close)
        lines = closing.enter_context((directory / applied_name).open("w", buffering=1))

        def note(applied: Applied) -> None:
            at = time.time()
            for cursor in applied.cursors:
                lines.write(f"{at:.6f} {cursor.sequence} {cursor.group_id}\n")

        trusted = TrustedKeys(client.history, anchors)
        await trusted.follow(client.connection)
        projection = Projection(store, SignatureProof(trusted), note)
        history = SignedHistory(client.history)
        delivery = ShardDelivery(client, projection)
        await ConsumerRun(client.connection, organization_id, (projection,), delivery, history, shards=history).run()


def main() -> None:
    """Run from the command line."""
    nats_url, organization_id, keys, directory = sys.argv[1:5]
    uvloop.run(follow(nats_url, organization_id, Path(keys), Path(directory)))


if __name__ == "__main__":
    main()
