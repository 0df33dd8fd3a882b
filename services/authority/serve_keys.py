"""Tell a Principal what the registry holds of some keys, in an answer that the authority signs (TRU-2).

Public keys are no secret inside an Organization. Whoever relies on them must know that the answer is the authority's
own and of now, since brokers carry it: it names the request, and the key that signs Events signs it too.
"""

from typing import Any

from msgspec import convert
from psycopg import AsyncConnection

from contracts.bounds import event_bytes_max
from contracts.canonical import parse_strict
from contracts.identifiers import registry_group
from contracts.payloads.requests import KeyList, Keys
from contracts.signature import SigningKey, algorithm, base64url_text, sign_document
from contracts.timestamps import format_timestamp
from services.process.statements import load

sql = load(__package__)


async def serve_keys(
    connection: AsyncConnection[Any], organization_id: str, key: SigningKey, action_id: str, request: Keys
) -> KeyList:
    """The asked keys that are registered, with all that was stated before `answered_at`, signed with `key`."""
    asked = {
        "organization_id": organization_id,
        "registry_group": registry_group(organization_id),
        "key_ids": list(request.key_ids),
    }
    # The clock first: what is committed by then is in what is read afterwards.
    [(now,)] = await (await connection.execute(sql.read_clock)).fetchall()
    bindings = await (await connection.execute(sql.read_key_bindings, asked)).fetchall()
    events = await (await connection.execute(sql.read_binding_events, asked)).fetchall()
    answered_at = format_timestamp(now)
    document: dict[str, Any] = {
        "kind": "ext.weavehold.answer.keys",
        "actionId": action_id,
        "answeredAt": answered_at,
        "registry": {"organizationId": organization_id, "bindings": [_binding(row) for row in bindings]},
        "boundBy": [parse_strict(bytes(event), event_bytes_max) for (event,) in events],
    }
    sign_document(document, key, answered_at)
    return convert(document, KeyList)


def _binding(row: tuple[Any, ...]) -> dict[str, Any]:
    """The JSON of a `contracts.key_registry.KeyBinding`."""
    key_id, principal_type, principal_id, public_key, valid_from, validity_history = row
    return {
        "keyId": key_id,
        "principal": {"type": principal_type, "id": principal_id},
        "algorithm": algorithm,
        "publicKey": base64url_text(bytes(public_key)),
        "validFrom": valid_from,
        "validityHistory": validity_history,
    }
