"""Admission of a signed document that passed the six stages: what the log of first admissions must say of it (TRU-4).

The log is append-only and keyed by (Organization, signing hash). The functions here judge what it answered; whoever
calls them does the looking up and the appending:

    first admission:    look up → `judge_first_admission` → ToAppend → append or get the existing → `judge_append`
    historical replay:  look up → `judge_historical_replay`, which has no way to append

A record counts only if it is this document's in every binding, the log authenticated the service that accepted, and
the trusted time lies in the key's interval as registered now: a revocation later than that time disturbs nothing.
Whatever is uncertain is refused. The reason is for the protected audit record; the wire learns nothing (TRU-5).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar, Final

from msgspec import Struct, ValidationError, to_builtins

from contracts.chain import SigningHash, hash_text
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor
from contracts.documents.first_admission_record import FirstAdmissionRecord
from contracts.documents.reading import read
from contracts.event import Event
from contracts.rejection import Code
from contracts.timestamps import Instant, instant
from contracts.verification import RegisteredKey, Verified

admission_stage: Final = "admission"
"""What follows the six stages, by the protocol's name."""


class Reason(Enum):
    """Why a document is not admitted; the value is the protocol's name of it."""

    RECORD_MISSING = "record-missing"
    RECORD_BINDING_MISMATCH = "record-binding-mismatch"
    TRUSTED_TIME_OUTSIDE_KEY_INTERVAL = "trusted-time-outside-key-interval"
    MALFORMED_TRUSTED_TIME = "malformed-trusted-time"
    RECORD_CONFLICT = "record-conflict"
    RECORD_SCHEMA_INVALID = "record-schema-invalid"
    LOG_AUTHENTICATION_FAILED = "log-authentication-failed"
    APPEND_INTEGRITY_NOT_ESTABLISHED = "append-integrity-not-established"
    LOG_UNAVAILABLE = "log-unavailable"
    LOG_INDETERMINATE = "log-indeterminate"
    COMMIT_FAILED = "commit-failed"
    EVENT_SELF_ANCHORING = "event-self-anchoring"


# What the log answers. `record` is JSON as `parse_strict` gives it, or the Struct when the caller vouches for it;
# `service` is the Principal that the log authenticated as the one that accepted.


class Found(Struct, frozen=True):
    """The log holds a record under this Organization and signing hash."""

    record: Any
    service: Actor


class LookupMiss(Enum):
    """Why a look-up gave no record. Only the first one says that there is none."""

    AUTHORITATIVE_ABSENCE = "authoritative-absence"
    UNAUTHENTICATED = "unauthenticated"
    INTEGRITY_FAILED = "integrity-failed"
    UNAVAILABLE = "unavailable"
    INDETERMINATE = "indeterminate"


class Committed(Struct, frozen=True):
    """The log appended the record and returns it."""

    record: Any
    service: Actor


class Existing(Struct, frozen=True):
    """Somebody else's append was first; the log returns the record that it keeps."""

    record: Any
    service: Actor


class AppendMiss(Enum):
    """Why an append gave no record."""

    CONFLICT = "conflict"
    UNAUTHENTICATED = "unauthenticated"
    INTEGRITY_FAILED = "integrity-failed"
    UNAVAILABLE = "unavailable"
    INDETERMINATE = "indeterminate"


Lookup = Found | LookupMiss
Append = Committed | Existing | AppendMiss

# The one table of what a log that gives no record means. An integrity fault is the same in both places: that the log
# only ever grew is not established. A failed append has another name than a failed look-up: the look-up before it was
# answered, so the log was there and what failed is the commit. An append whose outcome nobody knows is no commit
# either; the next attempt begins with a look-up, which finds the record if it was kept.
_lookup_reasons: Final[Mapping[LookupMiss, Reason]] = {
    LookupMiss.AUTHORITATIVE_ABSENCE: Reason.RECORD_MISSING,
    LookupMiss.UNAUTHENTICATED: Reason.LOG_AUTHENTICATION_FAILED,
    LookupMiss.INTEGRITY_FAILED: Reason.APPEND_INTEGRITY_NOT_ESTABLISHED,
    LookupMiss.UNAVAILABLE: Reason.LOG_UNAVAILABLE,
    LookupMiss.INDETERMINATE: Reason.LOG_INDETERMINATE,
}
_append_reasons: Final[Mapping[AppendMiss, Reason]] = {
    AppendMiss.CONFLICT: Reason.RECORD_CONFLICT,
    AppendMiss.UNAUTHENTICATED: Reason.LOG_AUTHENTICATION_FAILED,
    AppendMiss.INTEGRITY_FAILED: Reason.APPEND_INTEGRITY_NOT_ESTABLISHED,
    AppendMiss.UNAVAILABLE: Reason.COMMIT_FAILED,
    AppendMiss.INDETERMINATE: Reason.COMMIT_FAILED,
}


class TrustedContext(Struct, frozen=True, kw_only=True):
    """What an accepting service says of a first admission. Nothing in it was checked yet, the time least of all."""

    admission_record_id: str
    trusted_accepted_at: str
    accepted_by: Actor


class Admissible(Struct, frozen=True, kw_only=True):
    """A document that passed the six stages, as the log knows it.

    `key` is the one that verified it, as registered now. `event` is the document itself when it is an Event, which
    may not be its own evidence; for every other kind it is None.
    """

    organization_id: str
    kind: DocumentKind
    signing_hash: SigningHash
    key: RegisteredKey
    event: Event | None = None

    def __post_init__(self) -> None:
        """An Event without its content could anchor itself unseen."""
        if (self.kind is DocumentKind.EVENT) is not (self.event is not None):
            raise ValueError(f"an admissible {self.kind.value} and its event member do not fit together")


class Admitted(Struct, frozen=True):
    """The document was first admitted as this record says."""

    record: FirstAdmissionRecord


class ToAppend(Struct, frozen=True):
    """The log must append this record, or return the one that it has, before the document is admitted."""

    record: FirstAdmissionRecord


class Refused(Struct, frozen=True):
    """Not admitted. `detail` says in words what `reason` is about."""

    wire_code: ClassVar[Code] = Code.AUTH_INVALID_SIGNATURE

    reason: Reason
    detail: str


def admissible(verified: Verified, key: RegisteredKey, organization_id: str) -> Admissible:
    """A verified document of this Organization; `key` is the registered key that verified it.

    Raises ValueError when it is another key, which is a fault of the caller.
    """
    if (key.key_id, key.principal) != (verified.key_id, verified.principal):
        raise ValueError(f"{key.key_id} of {key.principal.id} did not verify this document; {verified.key_id} did")
    event = verified.typed if isinstance(verified.typed, Event) else None
    return Admissible(
        organization_id=organization_id,
        kind=verified.kind,
        signing_hash=verified.signing_hash,
        key=key,
        event=event,
    )


def judge_historical_replay(document: Admissible, found: Lookup) -> Admitted | Refused:
    """Whether the log proves that the document was admitted once. Absence is no proof, and nothing is appended."""
    if isinstance(found, LookupMiss):
        return Refused(_lookup_reasons[found], f"the look-up ended with {found.value}")
    return _judge_record(document, found)


def judge_first_admission(
    document: Admissible, found: Lookup, context: TrustedContext | None
) -> Admitted | ToAppend | Refused:
    """Admitted under the record that was found, or the record to append when the log surely has none.

    `context` is needed in the second case only.
    """
    if found is LookupMiss.AUTHORITATIVE_ABSENCE:
        return _propose(document, context)
    return judge_historical_replay(document, found)


def judge_append(document: Admissible, asked: ToAppend, outcome: Append) -> Admitted | Refused:
    """Whether the record that the log returned admits the document.

    A committed one must be exactly what was asked for; one that existed already may have another ID, time and
    accepting service.
    """
    if isinstance(outcome, AppendMiss):
        return Refused(_append_reasons[outcome], f"the append ended with {outcome.value}")
    judged = _judge_record(document, outcome)
    if isinstance(outcome, Committed) and isinstance(judged, Admitted) and judged.record != asked.record:
        detail = f"the log says it committed {asked.record.admission_record_id} and returned another record"
        return Refused(Reason.APPEND_INTEGRITY_NOT_ESTABLISHED, detail)
    return judged


def _propose(document: Admissible, context: TrustedContext | None) -> ToAppend | Refused:
    if context is None:
        if document.event is not None:
            return Refused(Reason.EVENT_SELF_ANCHORING, "the Event alone would say when and by whom it was accepted")
        return Refused(Reason.MALFORMED_TRUSTED_TIME, "no trusted acceptance time is given")
    try:
        accepted_at = instant(context.trusted_accepted_at)
    except ValueError as fault:
        return Refused(Reason.MALFORMED_TRUSTED_TIME, str(fault))
    if _anchors_itself(document, context.admission_record_id, context.accepted_by):
        return Refused(Reason.EVENT_SELF_ANCHORING, "the trusted context repeats what the Event says of itself")
    if not _covers(document.key, accepted_at):
        return _outside(document.key, context.trusted_accepted_at)
    record = {
        "protocolVersion": "0.1",
        "admissionRecordId": context.admission_record_id,
        "organizationId": document.organization_id,
        "documentKind": document.kind.value,
        "signingHash": hash_text(document.signing_hash),
        "keyId": document.key.key_id,
        "principal": to_builtins(document.key.principal),
        "trustedAcceptedAt": context.trusted_accepted_at,
        "acceptedBy": to_builtins(context.accepted_by),
    }
    try:
        return ToAppend(read(record, FirstAdmissionRecord))
    except ValidationError as fault:
        return Refused(Reason.RECORD_SCHEMA_INVALID, f"the record to append: {fault}")


def _judge_record(document: Admissible, entry: Found | Committed | Existing) -> Admitted | Refused:
    """The checks that every record of the log must pass, whichever way it came."""
    if _is_the_event(document, entry.record):
        return Refused(Reason.EVENT_SELF_ANCHORING, "the record is the Event itself")
    try:
        record = read(entry.record, FirstAdmissionRecord)
        accepted_at = instant(record.trusted_accepted_at)
    except ValueError as fault:  # ValidationError is one
        return Refused(Reason.RECORD_SCHEMA_INVALID, str(fault))
    if _anchors_itself(document, record.admission_record_id, record.accepted_by):
        return Refused(Reason.EVENT_SELF_ANCHORING, "the record repeats what the Event says of itself")
    if differing := _differing_bindings(document, record):
        return Refused(Reason.RECORD_BINDING_MISMATCH, f"the record is of another {', '.join(differing)}")
    if record.accepted_by != entry.service:
        detail = f"{record.accepted_by.id} accepted; the log authenticated {entry.service.id}"
        return Refused(Reason.LOG_AUTHENTICATION_FAILED, detail)
    if not _covers(document.key, accepted_at):
        return _outside(document.key, record.trusted_accepted_at)
    return Admitted(record)


def _differing_bindings(document: Admissible, record: FirstAdmissionRecord) -> list[str]:
    bindings = {
        "Organization": (record.organization_id, document.organization_id),
        "document kind": (record.document_kind, document.kind),
        "signing hash": (record.signing_hash, hash_text(document.signing_hash)),
        "key": (record.key_id, document.key.key_id),
        "Principal": (record.principal, document.key.principal),
    }
    return [name for name, (recorded, verified) in bindings.items() if recorded != verified]


def _is_the_event(document: Admissible, record: Any) -> bool:
    """No record has an `eventId`: what has this Event's is the Event, or poses as it."""
    return document.event is not None and isinstance(record, dict) and record.get("eventId") == document.event.event_id


def _anchors_itself(document: Admissible, record_id: str, accepted_by: Actor) -> bool:
    """Whether an Event's acceptance is vouched for by nobody but the Event: under its ID, or by who signed it.

    The service that accepted an Event says so in the Event already; its word a second time proves nothing more.
    """
    event = document.event
    return event is not None and (accepted_by == event.accepted_by or record_id == event.event_id)


def _covers(key: RegisteredKey, moment: Instant) -> bool:
    """Half-open and exact; a boundary that cannot be read covers nothing."""
    try:
        return key.covers(moment)
    except ValueError:
        return False


def _outside(key: RegisteredKey, accepted_at: str) -> Refused:
    ends = "".join(f", {name} {end}" for name, end in (("until", key.valid_until), ("revoked", key.revoked_at)) if end)
    detail = f"{accepted_at} is not in the interval of {key.key_id}: from {key.valid_from}{ends}"
    return Refused(Reason.TRUSTED_TIME_OUTSIDE_KEY_INTERVAL, detail)
