"""Opens a session after a proven handshake: a Command of the authority's own through the Organization shard."""

from collections.abc import Awaitable, Callable

from msgspec import json as msgspec_json

from contracts.command import session_open
from contracts.event import Event
from contracts.event_contracts import current_payload
from contracts.identifiers import SessionEpoch
from contracts.rejection import Rejection
from contracts.reply import decode_reply
from contracts.signature import SigningKey
from services.authority.serve_session import SessionOpened
from services.authority.sign_own_command import sign_own_command
from services.process.database import Connections
from services.process.statements import load

sql = load(__package__)


class SessionOpener:
    """Signs `session_open` with the authority's key and submits it like any other Command."""

    def __init__(
        self,
        submit: Callable[[bytes], Awaitable[bytes]],
        pool: Connections,
        organization_id: str,
        current_key: Callable[[], SigningKey],
    ) -> None:
        """`submit` takes Command bytes and returns the encoded reply; `current_key` is the service's."""
        self._submit = submit
        self._pool = pool
        self._organization_id = organization_id
        self._current_key = current_key

    async def open(self, agent_id: str, key_id: str) -> SessionOpened | Rejection:
        """Raise the Agent's Session Epoch. The epoch is read from the Event, for a later session may follow at once."""
        payload = {"agentId": agent_id, "keyId": key_id}
        async with self._pool.connection() as connection:
            raw = await sign_own_command(connection, self._current_key(), session_open, payload)
        reply = decode_reply(await self._submit(raw))
        if isinstance(reply, Rejection):
            return reply
        asked = {"organization_id": self._organization_id, "event_id": reply.events[0].event_id}
        async with self._pool.connection() as connection:
            [(raw,)] = await (await connection.execute(sql.read_event, asked, binary=True)).fetchall()
        event = msgspec_json.decode(raw, type=Event)
        epoch = SessionEpoch(current_payload(event)["sessionEpoch"])
        return SessionOpened(session_epoch=epoch, opened_at=event.occurred_at)
