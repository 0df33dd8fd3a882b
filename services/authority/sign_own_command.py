"""Commands that the authority gives itself: signed with its service key, submitted like anybody's."""

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection

from contracts.signature import SigningKey, sign_document
from contracts.timestamps import format_timestamp
from services.process.statements import load
from services.process.unique import uuid7_urn

sql = load(__package__)


async def sign_own_command(
    connection: AsyncConnection[Any],
    key: SigningKey,
    kind: str,
    payload: Mapping[str, Any],
    *,
    group_id: str | None = None,
) -> bytes:
    """The bytes of a new Command of the key's Principal; without `group_id` it is Organization-scoped.

    It is issued by the database's clock, which also judges freshness: this host's may be off.
    """
    [(moment,)] = await (await connection.execute(sql.read_clock)).fetchall()
    now = format_timestamp(moment)
    principal = key.principal
    command: dict[str, Any] = {
        "protocolVersion": "0.1",
        "actionId": uuid7_urn(),
        "actor": {"type": principal.type.value, "id": principal.id},
        "kind": kind,
        "correlationId": uuid7_urn(),
        "issuedAt": now,
        "payload": dict(payload),
    }
    if group_id is not None:
        command["groupId"] = group_id
    return sign_document(command, key, now)
