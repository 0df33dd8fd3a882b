"""Registry evidence as the rows have it: whole for whoever judges it, or of some keys for whoever asks (TRU-2)."""

from collections.abc import Iterable

from msgspec import UNSET, structs
from psycopg import DataError

from contracts.documents.common import Actor, ActorType
from contracts.key_registry import KeyBinding, RegistryEvidence, ValidityStatement
from contracts.signature import algorithm, base64url_text
from contracts.timestamps import format_timestamp
from contracts.verification import RegistryFault
from services.authority.batch_facts import sql
from services.process.database import Connection


async def read_evidence(
    connection: Connection, organization_id: str, key_ids: Iterable[str] | None = None
) -> RegistryEvidence:
    """The bindings of an Organization, all or those of `key_ids`, with all statements of their ends, by key ID.

    Nothing is judged: the evidence may be invalid, and of keys that nobody has it has no bindings. Raises RegistryFault
    for a row that no calendar can read, and psycopg errors.
    """
    try:
        return await _read(connection, organization_id, key_ids)
    except DataError as fault:
        raise RegistryFault(f"a row of it cannot be read: {fault}") from fault


async def _read(connection: Connection, organization_id: str, key_ids: Iterable[str] | None) -> RegistryEvidence:
    asked = {"organization_id": organization_id, "key_ids": None if key_ids is None else list(key_ids)}
    cursor = await connection.execute(sql.read_evidence, asked, binary=True)
    bindings: dict[str, KeyBinding] = {}
    histories: dict[str, list[ValidityStatement]] = {}
    async for row in cursor:
        key_id, principal_type, principal_id, public_key, valid_from, sequence, recorded_at, until, revoked = row
        if key_id not in bindings:
            bindings[key_id] = KeyBinding(
                key_id=key_id,
                principal=Actor(type=ActorType(principal_type), id=principal_id),
                algorithm=algorithm,
                public_key=base64url_text(public_key),
                valid_from=valid_from,
                validity_history=(),
            )
        if sequence is not None:
            histories.setdefault(key_id, []).append(
                ValidityStatement(
                    sequence=sequence,
                    recorded_at=format_timestamp(recorded_at),
                    valid_until=UNSET if until is None else until,
                    revoked_at=UNSET if revoked is None else revoked,
                )
            )
    return RegistryEvidence(
        organization_id=organization_id,
        bindings=tuple(
            structs.replace(binding, validity_history=tuple(histories.get(key_id, ())))
            for key_id, binding in bindings.items()
        ),
    )
