"""Every accepted Command, and the signed documents inside it, judged again as history (TRU-1, TRU-2, TRU-4).

Six stages with the keys as registered now, then the historical replay of admission, which never appends: what was
accepted once must stay verifiable for ever, whatever was revoked since.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from psycopg import AsyncConnection

from contracts.admission import Found, LookupMiss, Refused, admissible, judge_historical_replay
from contracts.bounds import command_bytes_max
from contracts.command import Command
from contracts.document_kinds import DocumentKind
from contracts.documents.first_admission_record import FirstAdmissionRecord
from contracts.key_registry import KeyRegistry
from contracts.verification import VerificationFailure, Verified, verify_document, verify_parsed
from ops.verify.verify_log import sql
from services.authority.admission_book import admission_record, hash_bytes
from services.authority.audit_registry import read_evidence
from services.authority.decide import nested_documents
from services.process.arrays import BytesColumn


class AdmissionReplay:
    """Replays the admissions of stored Commands, page by page."""

    def __init__(self, connection: AsyncConnection[Any], registry: KeyRegistry) -> None:
        """`registry` is the whole Organization's, valid as evidence."""
        self._connection = connection
        self._registry = registry

    @classmethod
    async def open(cls, connection: AsyncConnection[Any], organization_id: str) -> "AdmissionReplay":
        """With the registry as it stands now. Raises RegistryFault when its evidence is not valid."""
        return cls(connection, KeyRegistry(await read_evidence(connection, organization_id)))

    async def problems(self, commands: Sequence[bytes]) -> list[str | None]:
        """Why each of these Commands can no longer be verified, or None."""
        verified = [list(self._verified(raw)) for raw in commands]
        hashes = {each.signing_hash for found in verified for each in found if isinstance(each, Verified)}
        asked = {"organization_id": self._registry.organization_id, "signing_hashes": BytesColumn(sorted(hashes))}
        cursor = await self._connection.execute(sql.read_admitted, asked, binary=True)
        records = [admission_record(self._registry.organization_id, row) for row in await cursor.fetchall()]
        by_hash = {hash_bytes(record): record for record in records}
        return [next((p for each in found if (p := self._problem(each, by_hash))), None) for found in verified]

    def _verified(self, raw: bytes) -> Iterator[Verified | VerificationFailure]:
        """The Command and the documents inside it through the six stages."""
        outcome = verify_document(DocumentKind.COMMAND, raw, self._registry, command_bytes_max)
        yield outcome
        if isinstance(outcome, Verified) and isinstance(outcome.typed, Command):
            for kind, document in nested_documents(outcome.typed):
                yield verify_parsed(kind, document, self._registry)

    def _problem(self, outcome: Verified | VerificationFailure, records: dict[Any, FirstAdmissionRecord]) -> str | None:
        if isinstance(outcome, VerificationFailure):
            return f"fails at {outcome.stage.value}: {outcome.reason}"
        key = self._registry.resolve(outcome.key_id)
        if key is None:
            return f"was signed with {outcome.key_id}, which is not registered"
        record = records.get(outcome.signing_hash)
        # The log is this Organization's own: whom its record names as accepting is whom it authenticated.
        found = LookupMiss.AUTHORITATIVE_ABSENCE if record is None else Found(record, record.accepted_by)
        judged = judge_historical_replay(admissible(outcome, key, self._registry.organization_id), found)
        if isinstance(judged, Refused):
            return f"{outcome.kind.value}: {judged.reason.value}: {judged.detail}"
        return None
