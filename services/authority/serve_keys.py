"""Tell a Principal what the registry holds of some keys, in an answer that the authority signs (TRU-2).

Public keys are no secret inside an Organization. Whoever relies on them must know that the answer is the authority's
own and of now, since brokers carry it: it names the request, and the key that signs Events signs it too.
"""

from typing import Any

from msgspec import convert, to_builtins
from psycopg import AsyncConnection

from contracts.bounds import event_bytes_max
from contracts.canonical import parse_strict
from contracts.identifiers import registry_group
from contracts.payloads.requests import KeyList, Keys
from contracts.signature import SigningKey, sign_document
from contracts.timestamps import format_timestamp
from services.authority.batch_facts import sql
from services.authority.read_evidence import read_evidence


async def serve_keys(
    connection: AsyncConnection[Any], organization_id: str, key: SigningKey, action_id: str, request: Keys
) -> KeyList:
    """The asked keys that are registered, with all that was stated before `answered_at`, signed with `key`.

    The Events that bound keys come along for those of `key`'s own Principal: by them whoever trusts an earlier key of
    the authority comes to trust a later one. Whoever bound a person's key is nobody's business here.
    """
    asked = {
        "organization_id": organization_id,
        "registry_group": registry_group(organization_id),
        "key_ids": list(request.key_ids),
        "principal_type": key.principal.type.value,
        "principal_id": key.principal.id,
    }
    async with connection.transaction():
        # Whoever changes keys takes a time under this lock and holds it until the commit: what bears an earlier time
        # than the clock read here is in what is read afterwards, and what is still to come bears a later one.
        await connection.execute(sql.lock_keys_shared, asked)
        [(now,)] = await (await connection.execute(sql.read_clock)).fetchall()
        evidence = await read_evidence(connection, organization_id, request.key_ids)
        events = await (await connection.execute(sql.read_binding_events, asked)).fetchall()
    answered_at = format_timestamp(now)
    document: dict[str, Any] = {
        "kind": "ext.weavehold.answer.keys",
        "actionId": action_id,
        "answeredAt": answered_at,
        "registry": to_builtins(evidence),
        "boundBy": [parse_strict(bytes(event), event_bytes_max) for (event,) in events],
    }
    sign_document(document, key, answered_at)
    return convert(document, KeyList)
