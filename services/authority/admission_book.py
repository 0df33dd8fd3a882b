"""The log of first admissions as one batch meets it: what it holds already, and what the batch appends (TRU-4).

Append-or-return-existing is one step: what exists was read under the locks, and an append that somebody else's
overtook fails its insert, so the batch is judged again with that record in hand.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from contracts.admission import Admissible, Found, Refused, judge_historical_replay
from contracts.chain import SigningHash, hash_bytes, hash_text
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType
from contracts.documents.first_admission_record import FirstAdmissionRecord
from contracts.timestamps import format_timestamp
from contracts.verification import RegisteredKey
from services.authority.admitted import SignedFact


class AdmissionBook:
    """Records by signing hash. `appended` are those that the batch makes, in the order of their making."""

    def __init__(
        self,
        organization_id: str,
        accepted_by: Actor,
        accepted_at: str,
        found: Iterable[FirstAdmissionRecord],
        new_id: Callable[[], str],
    ) -> None:
        """`accepted_by` is the service that this log's entries must come from; `accepted_at` the batch's moment."""
        self.appended: dict[SigningHash, FirstAdmissionRecord] = {}
        self._organization_id = organization_id
        self._accepted_by = accepted_by
        self._accepted_at = accepted_at
        self._found = {hash_bytes(record.signing_hash): record for record in found}
        self._new_id = new_id

    def holds(self, fact: SignedFact) -> bool:
        """Whether this document has a record; most have none yet."""
        return fact.signing_hash in self._found or fact.signing_hash in self.appended

    def fault(self, fact: SignedFact, key: RegisteredKey) -> str | None:
        """Why the record that this document has already does not admit it, or None."""
        record = self._found.get(fact.signing_hash) or self.appended.get(fact.signing_hash)
        if record is None:
            return None
        document = Admissible(
            organization_id=self._organization_id,
            kind=DocumentKind(fact.kind),
            signing_hash=fact.signing_hash,
            key=key,
        )
        judged = judge_historical_replay(document, Found(record, self._accepted_by))
        return f"{judged.reason.value}: {judged.detail}" if isinstance(judged, Refused) else None

    def append(self, fact: SignedFact) -> None:
        """Make the record of a document's first admission, unless it has one."""
        if self.holds(fact):
            return
        self.appended[fact.signing_hash] = FirstAdmissionRecord(
            protocol_version="0.1",
            admission_record_id=self._new_id(),
            organization_id=self._organization_id,
            document_kind=DocumentKind(fact.kind),
            signing_hash=hash_text(fact.signing_hash),
            key_id=fact.key_id,
            principal=fact.principal,
            trusted_accepted_at=self._accepted_at,
            accepted_by=self._accepted_by,
        )


def admission_record(organization_id: str, row: Sequence[Any]) -> FirstAdmissionRecord:
    """A record from its row: hash, ID, kind, key, Principal's type and ID, time, accepting service."""
    signing_hash, record_id, kind, key_id, principal_type, principal_id, accepted_at, accepted_by = row
    return FirstAdmissionRecord(
        protocol_version="0.1",
        admission_record_id=record_id,
        organization_id=organization_id,
        document_kind=DocumentKind(kind),
        signing_hash=hash_text(bytes(signing_hash)),
        key_id=key_id,
        principal=Actor(type=ActorType(principal_type), id=principal_id),
        trusted_accepted_at=format_timestamp(accepted_at),
        accepted_by=Actor(type=ActorType.SERVICE, id=accepted_by),
    )
