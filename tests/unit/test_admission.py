"""Admission: what the log of first admissions must say before a verified document counts (TRU-4)."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs, to_builtins

from contracts import admission
from contracts.admission import (
    Admissible,
    Admitted,
    Append,
    AppendMiss,
    Committed,
    Existing,
    Found,
    Lookup,
    LookupMiss,
    Reason,
    Refused,
    ToAppend,
    TrustedContext,
    admissible,
    judge_append,
    judge_first_admission,
    judge_historical_replay,
)
from contracts.bounds import event_bytes_max
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType
from contracts.documents.first_admission_record import FirstAdmissionRecord
from contracts.rejection import Code
from contracts.verification import RegisteredKey, Verified, verify_document
from tests.builders import build_command, build_event, principal, signing_key, test_organization

worker = signing_key("worker")
authority = signing_key("authority", ActorType.SERVICE)
accepting = principal("admission", ActorType.SERVICE)
elsewhere = principal("elsewhere", ActorType.SERVICE)

valid_from = "2026-07-15T00:00:00Z"
valid_until = "2026-07-16T00:00:00Z"
moment = "2026-07-15T08:00:00.5Z"


def registered(key: Any, **facts: Any) -> RegisteredKey:
    stated = {"valid_from": valid_from, "valid_until": valid_until, **facts}
    return RegisteredKey(key_id=key.key_id, principal=key.principal, public_key=key.public_key, **stated)


class OneKey:
    def __init__(self, key: RegisteredKey) -> None:
        self.key = key

    def resolve(self, key_id: str) -> RegisteredKey | None:
        return self.key if key_id == self.key.key_id else None


def verified(kind: DocumentKind, raw: bytes, key: Any) -> Verified:
    outcome = verify_document(kind, raw, OneKey(registered(key)), event_bytes_max)
    assert isinstance(outcome, Verified), outcome
    return outcome


post = {"messageId": "urn:weavehold:message:1", "content": [{"n": 1}]}
command = verified(DocumentKind.COMMAND, build_command("message.post", post, worker).raw, worker)
built_event = build_event("message.posted", {"free": 1}, authority)
event = verified(DocumentKind.EVENT, built_event.raw, authority)


def of_command(**facts: Any) -> Admissible:
    return admissible(command, registered(worker, **facts), test_organization)


of_event = admissible(event, registered(authority), test_organization)


def record_of(document: Admissible, **members: Any) -> dict[str, Any]:
    """The record as JSON; `members` are set after that, None takes one away."""
    record = {
        "protocolVersion": "0.1",
        "admissionRecordId": "urn:weavehold:admission:1",
        "organizationId": document.organization_id,
        "documentKind": document.kind.value,
        "signingHash": f"sha256:{document.signing_hash.hex()}",
        "keyId": document.key.key_id,
        "principal": to_builtins(document.key.principal),
        "trustedAcceptedAt": moment,
        "acceptedBy": to_builtins(accepting),
    }
    return {name: value for name, value in (record | members).items() if value is not None}


def context(**facts: Any) -> TrustedContext:
    stated = {
        "admission_record_id": "urn:weavehold:admission:1",
        "trusted_accepted_at": moment,
        "accepted_by": accepting,
    }
    return TrustedContext(**(stated | facts))


def reason_of(outcome: object) -> Reason:
    assert isinstance(outcome, Refused), outcome
    assert outcome.detail
    return outcome.reason


def replay(document: Admissible, record: Any, service: Actor = accepting) -> Admitted | Refused:
    return judge_historical_replay(document, Found(record, service))


def proposed(document: Admissible, given_context: TrustedContext | None) -> Admitted | ToAppend | Refused:
    return judge_first_admission(document, LookupMiss.AUTHORITATIVE_ABSENCE, given_context)


def asked(document: Admissible, **facts: Any) -> ToAppend:
    outcome = proposed(document, context(**facts))
    assert isinstance(outcome, ToAppend), outcome
    return outcome


# The two roads.


def test_first_admission_appends_what_the_context_says() -> None:
    """TRU-4: absence, a record that binds everything, an append that returns exactly that record."""
    to_append = asked(of_command())
    assert to_builtins(to_append.record) == record_of(of_command())
    outcome = judge_append(of_command(), to_append, Committed(record_of(of_command()), accepting))
    assert outcome == Admitted(to_append.record)


def test_a_retry_is_admitted_by_the_record_that_is_found() -> None:
    """TRU-4: with or without a context, and whatever the context says."""
    found = Found(record_of(of_command()), accepting)
    for given_context in (None, context(), context(trusted_accepted_at="nonsense")):
        outcome = judge_first_admission(of_command(), found, given_context)
        assert isinstance(outcome, Admitted)
        assert to_builtins(outcome.record) == found.record


def test_historical_replay_has_no_way_to_append() -> None:
    """TRU-4: it returns a record or a refusal for whatever the log answers."""
    for found in (Found(record_of(of_command()), accepting), *LookupMiss):
        assert isinstance(judge_historical_replay(of_command(), found), Admitted | Refused)
    assert reason_of(judge_historical_replay(of_command(), LookupMiss.AUTHORITATIVE_ABSENCE)) is Reason.RECORD_MISSING


def test_a_parallel_append_that_was_first_admits_too() -> None:
    """TRU-4: the existing record may have another ID, time and service, but no other binding."""
    earlier = record_of(
        of_command(),
        admissionRecordId="urn:weavehold:admission:0",
        trustedAcceptedAt="2026-07-15T07:59:59Z",
        acceptedBy=to_builtins(elsewhere),
    )
    outcome = judge_append(of_command(), asked(of_command()), Existing(earlier, elsewhere))
    assert isinstance(outcome, Admitted)
    assert outcome.record.admission_record_id == "urn:weavehold:admission:0"
    for members, reason in broken_records:
        outcome = judge_append(of_command(), asked(of_command()), Existing(earlier | members, elsewhere))
        assert reason_of(outcome) is reason


@pytest.mark.parametrize(
    "members",
    [
        {"admissionRecordId": "urn:weavehold:admission:2"},
        {"trustedAcceptedAt": "2026-07-15T08:00:00.50Z"},
        {"acceptedBy": to_builtins(elsewhere)},
    ],
)
def test_a_committed_record_is_exactly_the_one_that_was_asked_for(members: dict[str, Any]) -> None:
    """TRU-4: a log that says "committed" and returns another record has not established what it holds."""
    returned = record_of(of_command(), **members)
    service = elsewhere if "acceptedBy" in members else accepting
    outcome = judge_append(of_command(), asked(of_command()), Committed(returned, service))
    assert reason_of(outcome) is Reason.APPEND_INTEGRITY_NOT_ESTABLISHED
    existing = judge_append(of_command(), asked(of_command()), Existing(returned, service))
    assert isinstance(existing, Admitted)


# A log that gives no record.

look_ups = {
    LookupMiss.AUTHORITATIVE_ABSENCE: Reason.RECORD_MISSING,
    LookupMiss.UNAUTHENTICATED: Reason.LOG_AUTHENTICATION_FAILED,
    LookupMiss.INTEGRITY_FAILED: Reason.APPEND_INTEGRITY_NOT_ESTABLISHED,
    LookupMiss.UNAVAILABLE: Reason.LOG_UNAVAILABLE,
    LookupMiss.INDETERMINATE: Reason.LOG_INDETERMINATE,
}
appends = {
    AppendMiss.CONFLICT: Reason.RECORD_CONFLICT,
    AppendMiss.UNAUTHENTICATED: Reason.LOG_AUTHENTICATION_FAILED,
    AppendMiss.INTEGRITY_FAILED: Reason.APPEND_INTEGRITY_NOT_ESTABLISHED,
    AppendMiss.UNAVAILABLE: Reason.COMMIT_FAILED,
    AppendMiss.INDETERMINATE: Reason.COMMIT_FAILED,
}


@pytest.mark.parametrize("miss", LookupMiss)
def test_a_look_up_without_a_record(miss: LookupMiss) -> None:
    """TRU-4: only authoritative absence lets a first admission go on."""
    assert reason_of(judge_historical_replay(of_command(), miss)) is look_ups[miss]
    outcome = judge_first_admission(of_command(), miss, context())
    if miss is LookupMiss.AUTHORITATIVE_ABSENCE:
        assert isinstance(outcome, ToAppend)
    else:
        assert reason_of(outcome) is look_ups[miss]


@pytest.mark.parametrize("miss", AppendMiss)
def test_an_append_without_a_record(miss: AppendMiss) -> None:
    """TRU-4: whatever is uncertain about a commit, nothing was admitted."""
    assert reason_of(judge_append(of_command(), asked(of_command()), miss)) is appends[miss]


def test_the_outcomes_are_closed() -> None:
    """TRU-4: nothing but these can come from a log, and each has its reason."""
    assert set(get_args(Lookup)) == {Found, LookupMiss}
    assert set(get_args(Append)) == {Committed, Existing, AppendMiss}
    assert set(look_ups) == set(LookupMiss)
    assert set(appends) == set(AppendMiss)


# A record.

broken_records: list[tuple[dict[str, Any], Reason]] = [
    ({"organizationId": "urn:weavehold:organization:other"}, Reason.RECORD_BINDING_MISMATCH),
    ({"documentKind": "event"}, Reason.RECORD_BINDING_MISMATCH),
    ({"signingHash": "sha256:" + "0" * 64}, Reason.RECORD_BINDING_MISMATCH),
    ({"keyId": "urn:weavehold:key:other"}, Reason.RECORD_BINDING_MISMATCH),
    ({"principal": {"type": "agent", "id": "urn:weavehold:agent:other"}}, Reason.RECORD_BINDING_MISMATCH),
    ({"principal": {"type": "human", "id": worker.principal.id}}, Reason.RECORD_BINDING_MISMATCH),
    ({"acceptedBy": {"type": "human", "id": accepting.id}}, Reason.RECORD_SCHEMA_INVALID),
    ({"trustedAcceptedAt": "2026-07-15T08:00:60Z"}, Reason.RECORD_SCHEMA_INVALID),
    ({"signingHash": "0" * 64}, Reason.RECORD_SCHEMA_INVALID),
    ({"protocolVersion": "0.2"}, Reason.RECORD_SCHEMA_INVALID),
    ({"more": 1}, Reason.RECORD_SCHEMA_INVALID),
    ({"\ud800": 1}, Reason.RECORD_SCHEMA_INVALID),
    ({"trustedAcceptedAt": "2026-07-16T00:00:00Z"}, Reason.TRUSTED_TIME_OUTSIDE_KEY_INTERVAL),
]


@pytest.mark.parametrize(("members", "reason"), broken_records)
def test_a_record_must_be_this_documents(members: dict[str, Any], reason: Reason) -> None:
    """TRU-4: Organization, kind, hash, key and Principal, and the form of a record."""
    assert reason_of(replay(of_command(), record_of(of_command(), **members))) is reason


@pytest.mark.parametrize("missing", record_of(of_command()))
def test_a_record_lacks_nothing(missing: str) -> None:
    """TRU-4."""
    assert reason_of(replay(of_command(), record_of(of_command(), **{missing: None}))) is Reason.RECORD_SCHEMA_INVALID


@pytest.mark.parametrize("record", [None, [], "text", 7, {}])
def test_what_is_no_record_is_schema_invalid(record: Any) -> None:
    """TRU-4."""
    assert reason_of(replay(of_command(), record)) is Reason.RECORD_SCHEMA_INVALID


def test_the_accepting_service_is_the_one_that_the_log_authenticated() -> None:
    """TRU-4: a record that names another service is not what the log stands for."""
    assert reason_of(replay(of_command(), record_of(of_command()), elsewhere)) is Reason.LOG_AUTHENTICATION_FAILED
    person = Actor(type=ActorType.HUMAN, id=accepting.id)
    assert reason_of(replay(of_command(), record_of(of_command()), person)) is Reason.LOG_AUTHENTICATION_FAILED


def test_a_record_may_come_as_a_struct() -> None:
    """TRU-4: rows of our own database are Structs already; their time is read all the same."""
    record = asked(of_command()).record
    assert replay(of_command(), record) == Admitted(record)
    unread = structs.replace(record, trusted_accepted_at="soon")
    assert reason_of(replay(of_command(), unread)) is Reason.RECORD_SCHEMA_INVALID


# The trusted time.

just_before_end = "2026-07-15T23:59:59." + "9" * 40 + "Z"
inside = [
    valid_from,
    "2026-07-15T02:00:00.000+02:00",
    "2026-07-15T00:00:00." + "0" * 40 + "1Z",
    just_before_end,
    "2026-07-15T19:59:59." + "9" * 30 + "-04:00",
]
outside = [
    "2026-07-14T23:59:59." + "9" * 40 + "Z",
    valid_until,
    "2026-07-16T02:00:00.0+02:00",
    "2026-07-16T00:00:00." + "0" * 40 + "1Z",
]


@pytest.mark.parametrize("time", inside)
def test_times_inside_the_interval(time: str) -> None:
    """TRU-4: half-open, exact at any precision, the text kept as received."""
    assert asked(of_command(), trusted_accepted_at=time).record.trusted_accepted_at == time
    assert isinstance(replay(of_command(), record_of(of_command(), trustedAcceptedAt=time)), Admitted)


@pytest.mark.parametrize("time", outside)
def test_times_outside_the_interval(time: str) -> None:
    """TRU-4: judged before anything is appended, and again on every record."""
    expected = Reason.TRUSTED_TIME_OUTSIDE_KEY_INTERVAL
    assert reason_of(proposed(of_command(), context(trusted_accepted_at=time))) is expected
    record = record_of(of_command(), trustedAcceptedAt=time)
    assert reason_of(replay(of_command(), record)) is expected
    assert reason_of(judge_append(of_command(), asked(of_command()), Existing(record, accepting))) is expected


@given(st.integers(1, 40), st.integers(-2, 2))
def test_the_end_is_exact_at_every_precision(digits: int, steps: int) -> None:
    """TRU-4: steps of 10^-digits seconds around an end that has as many digits."""
    end = 5 * 10 ** (digits - 1)
    bounded = of_command(valid_until=f"2026-07-15T12:00:00.{end:0{digits}}Z")
    time = f"2026-07-15T12:00:00.{end + steps:0{digits}}Z"
    outcome = replay(bounded, record_of(bounded, trustedAcceptedAt=time))
    assert isinstance(outcome, Admitted) is (steps < 0)


def test_a_later_revocation_disturbs_nothing() -> None:
    """TRU-4: the key is taken as it is registered now, the time as it was trusted then."""
    record = record_of(of_command())
    later = of_command(revoked_at="2026-07-15T08:00:00.500000000000000000001Z")
    assert isinstance(replay(later, record), Admitted)
    at_once = of_command(revoked_at="2026-07-15T08:00:00.500Z")
    assert reason_of(replay(at_once, record)) is Reason.TRUSTED_TIME_OUTSIDE_KEY_INTERVAL


@pytest.mark.parametrize("facts", [{"valid_from": "?"}, {"valid_until": "?"}, {"revoked_at": "?"}])
def test_an_interval_that_cannot_be_read_covers_nothing(facts: dict[str, str]) -> None:
    """TRU-4: fail closed."""
    refused = replay(of_command(**facts), record_of(of_command()))
    assert reason_of(refused) is Reason.TRUSTED_TIME_OUTSIDE_KEY_INTERVAL


@pytest.mark.parametrize(
    "time", ["", "now", "2026-07-15", "2026-07-15T08:00:00", "2026-07-15T08:00:00-00:00", "0000-07-15T08:00:00Z", "１"]
)
def test_a_trusted_time_is_a_timestamp(time: str) -> None:
    """TRU-4, TRU-3: in the context it is malformed-trusted-time; in a record the schema refuses it."""
    malformed = proposed(of_command(), context(trusted_accepted_at=time))
    assert reason_of(malformed) is Reason.MALFORMED_TRUSTED_TIME
    record = record_of(of_command(), trustedAcceptedAt=time)
    assert reason_of(replay(of_command(), record)) is Reason.RECORD_SCHEMA_INVALID


def test_no_context_is_no_trusted_time() -> None:
    """TRU-4."""
    assert reason_of(proposed(of_command(), None)) is Reason.MALFORMED_TRUSTED_TIME


@pytest.mark.parametrize(
    "facts",
    [{"admission_record_id": "no uri"}, {"accepted_by": principal("owner", ActorType.HUMAN)}],
)
def test_a_context_gives_a_valid_record(facts: dict[str, Any]) -> None:
    """TRU-4: what the schema of records refuses is never appended."""
    assert reason_of(proposed(of_command(), context(**facts))) is Reason.RECORD_SCHEMA_INVALID


# Events.


def test_an_event_is_admitted_like_everything_else() -> None:
    """TRU-4: by evidence of its own."""
    to_append = asked(of_event)
    assert isinstance(judge_append(of_event, to_append, Committed(record_of(of_event), accepting)), Admitted)
    assert isinstance(replay(of_event, record_of(of_event)), Admitted)


def own(name: str) -> str:
    return str(event.document[name])


event_service = authority.principal
self_anchoring: list[dict[str, Any]] = [
    {"admission_record_id": own("eventId")},
    {"trusted_accepted_at": own("occurredAt"), "accepted_by": event_service},
    {"accepted_by": event_service},
]


@pytest.mark.parametrize("facts", self_anchoring)
def test_an_event_is_never_its_own_evidence(facts: dict[str, Any]) -> None:
    """TRU-4: neither its ID nor its own word on who accepted it when, in a context or in a record."""
    stated = context(**facts)
    assert reason_of(proposed(of_event, stated)) is Reason.EVENT_SELF_ANCHORING
    record = record_of(
        of_event,
        admissionRecordId=stated.admission_record_id,
        trustedAcceptedAt=stated.trusted_accepted_at,
        acceptedBy=to_builtins(stated.accepted_by),
    )
    assert reason_of(replay(of_event, record, stated.accepted_by)) is Reason.EVENT_SELF_ANCHORING
    existing = Existing(record, stated.accepted_by)
    assert reason_of(judge_append(of_event, asked(of_event), existing)) is Reason.EVENT_SELF_ANCHORING


def test_an_event_stands_for_no_record_and_no_context() -> None:
    """TRU-4: the Event in the place of its record, and nothing but the Event."""
    assert reason_of(replay(of_event, event.document)) is Reason.EVENT_SELF_ANCHORING
    assert reason_of(proposed(of_event, None)) is Reason.EVENT_SELF_ANCHORING
    assert reason_of(replay(of_command(), event.document)) is Reason.RECORD_SCHEMA_INVALID


@pytest.mark.parametrize("facts", [{"trusted_accepted_at": own("occurredAt")}, {"accepted_by": elsewhere}])
def test_a_witness_may_see_an_event_in_its_own_moment(facts: dict[str, Any]) -> None:
    """TRU-4: another service vouches; two things may happen at one moment."""
    assert isinstance(proposed(of_event, context(**facts)), ToAppend)


def test_other_kinds_may_have_the_times_of_their_log() -> None:
    """TRU-4: the rule is about Events."""
    copied = context(trusted_accepted_at=command.protected_time, admission_record_id=command.document["actionId"])
    assert isinstance(proposed(of_command(), copied), ToAppend)


# What callers must not confuse.


def test_only_the_key_that_verified_admits() -> None:
    """TRU-4: another key is the caller's fault, not a refusal."""
    with pytest.raises(ValueError, match="did not verify"):
        admissible(command, registered(authority), test_organization)
    other_holder = structs.replace(registered(worker), principal=authority.principal)
    with pytest.raises(ValueError, match="did not verify"):
        admissible(command, other_holder, test_organization)


def test_an_event_always_brings_its_content() -> None:
    """TRU-4: without it nobody could see that it anchors itself."""
    with pytest.raises(ValueError, match="do not fit"):
        structs.replace(of_event, event=None)
    with pytest.raises(ValueError, match="do not fit"):
        structs.replace(of_command(), event=of_event.event)


def test_the_wire_learns_nothing() -> None:
    """TRU-5: one code for every reason."""
    assert {Refused(reason, "").wire_code for reason in Reason} == {Code.AUTH_INVALID_SIGNATURE}
    assert len(Reason) == 12
    assert admission.admission_stage == "admission"


def test_a_record_to_append_is_a_first_admission_record() -> None:
    """TRU-4."""
    assert isinstance(asked(of_command()).record, FirstAdmissionRecord)
