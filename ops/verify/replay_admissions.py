"""Every accepted Command, and the signed documents inside it, judged again as history (TRU-1, TRU-2, TRU-4).

Six stages with the keys as registered now, then the historical replay of admission, which never appends: what was
accepted once must stay verifiable for ever, whatever was revoked since. Who accepted, and when, is not the record's own
to say: the Receipt and its signed Event tell it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from psycopg import AsyncConnection

from contracts.admission import Found, LookupMiss, Refused, admissible, judge_historical_replay
from contracts.bounds import command_bytes_max
from contracts.chain import SigningHash, hash_bytes
from contracts.command import Command
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor
from contracts.documents.first_admission_record import FirstAdmissionRecord
from contracts.key_registry import KeyRegistry
from contracts.timestamps import instant
from contracts.verification import VerificationFailure, Verified, verify_document, verify_parsed
from services.authority.admission_book import admission_record
from services.authority.batch_facts import sql
from services.authority.decide import nested_documents
from services.authority.read_evidence import read_evidence
from services.process.arrays import BytesColumn


class AcceptedCommand(Struct, frozen=True, kw_only=True):
    """A stored Command's bytes; `accepted_at` as its Receipt and `accepted_by` as the Receipt's Event have it."""

    raw: bytes
    accepted_at: str
    accepted_by: Actor


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

    async def problems(self, commands: Sequence[AcceptedCommand]) -> list[str | None]:
        """Why each of these Commands can no longer be verified, or None."""
        verified = [list(self._verified(command.raw)) for command in commands]
        hashes = {each.signing_hash for found in verified for each in found if isinstance(each, Verified)}
        asked = {"organization_id": self._registry.organization_id, "signing_hashes": BytesColumn(sorted(hashes))}
        cursor = await self._connection.execute(sql.read_admissions, asked, binary=True)
        records = [admission_record(self._registry.organization_id, row) for row in await cursor.fetchall()]
        by_hash = {hash_bytes(record.signing_hash): record for record in records}
        return [
            next((p for each in found if (p := self._problem(each, command, by_hash))), None)
            for command, found in zip(commands, verified, strict=True)
        ]

    def _verified(self, raw: bytes) -> Iterator[Verified | VerificationFailure]:
        """The Command and the documents inside it through the six stages."""
        outcome = verify_document(DocumentKind.COMMAND, raw, self._registry, command_bytes_max)
        yield outcome
        if isinstance(outcome, Verified) and isinstance(outcome.typed, Command):
            for kind, document in nested_documents(outcome.typed):
                yield verify_parsed(kind, document, self._registry)

    def _problem(
        self,
        outcome: Verified | VerificationFailure,
        command: AcceptedCommand,
        records: dict[SigningHash, FirstAdmissionRecord],
    ) -> str | None:
        if isinstance(outcome, VerificationFailure):
            return f"fails at {outcome.stage.value}: {outcome.reason}"
        key = self._registry.resolve(outcome.key_id)
        if key is None:
            return f"was signed with {outcome.key_id}, which is not registered"
        record = records.get(outcome.signing_hash)
        found = LookupMiss.AUTHORITATIVE_ABSENCE if record is None else Found(record, command.accepted_by)
        judged = judge_historical_replay(admissible(outcome, key, self._registry.organization_id), found)
        if isinstance(judged, Refused):
            return f"{outcome.kind.value}: {judged.reason.value}: {judged.detail}"
        return None if record is None else _time_problem(outcome.kind, record.trusted_accepted_at, command.accepted_at)


def _time_problem(kind: DocumentKind, admitted_at: str, accepted_at: str) -> str | None:
    """A Command is admitted at the moment of its Events; a document inside it then, or by an earlier Command."""
    admitted, accepted = instant(admitted_at), instant(accepted_at)
    if admitted == accepted or (kind is not DocumentKind.COMMAND and admitted < accepted):
        return None
    return f"{kind.value}: was admitted at {admitted_at}, but the Command was accepted at {accepted_at}"
