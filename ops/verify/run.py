"""All checks of `weavehold verify`, one after another, on one view of the database."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from ops.projection_place import ProjectionPlace
from ops.verify.finding import Report
from ops.verify.verify_incarnations import verify_incarnations
from ops.verify.verify_keys import verify_keys
from ops.verify.verify_log import LogVerifier
from ops.verify.verify_projections import verify_projections
from ops.verify.verify_receipts import verify_receipts
from ops.verify.verify_state import verify_state
from ops.verify.verify_stream import verify_streams
from services.process.broker import connect as connect_broker
from services.process.broker import no_credentials
from services.process.database import Timeouts, connect
from services.process.settings import BrokerCredentials

checks = ("log", "receipts", "state", "keys", "stream", "projections")
"""The checks in the order in which they run."""


def _silent(_check: str) -> None:
    """Say nothing."""


async def verify_all(
    database_url: str,
    organization_id: str,
    *,
    nats_url: str | None = None,
    nats_credentials: BrokerCredentials | None = None,
    projections: Sequence[ProjectionPlace] = (),
    progress: Callable[[str], None] = _silent,
) -> Report:
    """Verify everything that is there: without `nats_url` the streams are left out.

    What is committed while it runs may show as a lag of the stream or of a projection: verify at rest, or again.
    """
    report = Report()
    async with AsyncExitStack() as stack:
        connection = await connect(database_url, name="weavehold-verify", timeouts=Timeouts(statement=0))
        stack.push_async_callback(connection.close)
        progress("log")
        log = LogVerifier(connection, organization_id, report)
        await log.verify()
        await verify_incarnations(connection, organization_id, log.ends, report)
        progress("receipts")
        await verify_receipts(connection, organization_id, report)
        progress("state")
        await verify_state(connection, organization_id, report)
        progress("keys")
        await verify_keys(connection, organization_id, report)
        if nats_url is not None:
            progress("stream")
            shown = nats_credentials or no_credentials
            broker = await connect_broker(nats_url, name="weavehold-verify", credentials=shown)
            stack.push_async_callback(broker.close)
            await verify_streams(connection, broker, organization_id, report)
        progress("projections")
        await verify_projections(connection, organization_id, projections, report)
    return report
