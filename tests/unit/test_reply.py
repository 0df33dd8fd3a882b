"""Replies: one JSON object with a Receipt or an error."""

import json

import pytest

from contracts.canonical import CanonicalizationFault, canonical_bytes
from contracts.documents.common import ActorType
from contracts.identifiers import GroupSequence
from contracts.receipt import Outcome, Receipt, RecordedEvent
from contracts.rejection import Code, Rejection, reject
from contracts.reply import Refusal, ReplyFault, decode_refusal, decode_reply, encode_error, encode_receipt
from tests.builders import identifier, principal, start_time, test_group
from tests.vectors.protocol_schemas import needs_bundle, validator

receipt = Receipt(
    action_id=identifier("action"),
    actor=principal("worker"),
    command_hash="sha256:" + "0" * 64,
    group_id=test_group,
    events=(RecordedEvent(event_id=identifier("event"), sequence=GroupSequence(7), group_id=test_group),),
    aggregate_revision=3,
    outcome=Outcome.ACCEPTED,
    accepted_at=start_time,
)
organization_receipt = Receipt(
    action_id=identifier("action", 2),
    actor=principal("authority", ActorType.SERVICE),
    command_hash="sha256:" + "1" * 64,
    events=(RecordedEvent(event_id=identifier("event", 2), sequence=GroupSequence(1)),),
    aggregate_revision=0,
    outcome=Outcome.RECORDED_AS_EVIDENCE,
    accepted_at=start_time,
)
rejections = [
    *(reject(code, f"refused with {code.value}") for code in Code),
    reject(
        Code.REVISION_CONFLICT,
        "é" * 3000,
        retryable=True,
        related_action_id=identifier("action"),
        group_id=test_group,
        expected_revision=1,
        current_revision=2**53 - 1,
        retry_after_ms=1_000,
        snapshot_artifact_hash="sha256:" + "a" * 64,
        details={"eventId": identifier("event"), "n": 1.5, "text": "\0"},
    ),
]


@pytest.mark.parametrize("sent", [receipt, organization_receipt], ids=["group", "organization"])
def test_a_receipt_travels_as_stored(sent: Receipt) -> None:
    """RULE-30, MWP-EVT-003: the stored bytes are inside the reply, unchanged."""
    stored = canonical_bytes(sent)
    reply = encode_receipt(stored)
    assert stored in reply
    assert json.loads(reply).keys() == {"receipt"}
    assert decode_reply(reply) == sent
    assert decode_refusal(reply) is None


@pytest.mark.parametrize("sent", rejections, ids=lambda rejection: rejection.code.value)
def test_a_rejection_comes_back_as_it_was(sent: Rejection) -> None:
    """ERR-1, RULE-30: code, message, `retryable`, and what helps, with the authority's time."""
    reply = encode_error(sent, start_time)
    assert decode_reply(reply) == sent
    assert decode_refusal(reply) == Refusal(sent, start_time)
    assert canonical_bytes(json.loads(reply)) == reply


@needs_bundle
@pytest.mark.parametrize("sent", rejections, ids=lambda rejection: rejection.code.value)
def test_an_error_is_one_of_the_protocol(sent: Rejection) -> None:
    """ERR-1: `error.schema.json` accepts every error that we send."""
    validator("error").validate(json.loads(encode_error(sent, start_time))["error"])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"null",
        b'{"receipt":{}}',
        b'{"error":{}}',
        b'{"error":{"code":"NO_SUCH_CODE","message":"x","retryable":false,"occurredAt":"2026-07-15T08:00:00Z"}}',
        b'{"error":{"code":"BACKPRESSURE","message":"","retryable":false,"occurredAt":"2026-07-15T08:00:00Z"}}',
        b'{"error":{"code":"BACKPRESSURE","message":"x","retryable":false}}',
        encode_receipt(canonical_bytes(receipt))[:-1] + b',"more":1}',
        encode_receipt(canonical_bytes(receipt))[:-1] + b"," + encode_error(rejections[0], start_time)[1:],
        b"[" * 10_000,
        b'{"receipt":"\xff"}',
    ],
)
def test_what_is_no_reply_is_a_fault(raw: bytes) -> None:
    """RULE-30: never silently taken for one or the other."""
    with pytest.raises(ReplyFault):
        decode_reply(raw)


def test_the_error_of_any_request_is_found() -> None:
    """RULE-30: replies to reads carry other members, and the same errors."""
    assert decode_refusal(b'{"heads":[]}') is None
    spaced = b' { "error" : ' + encode_error(rejections[0], start_time)[len(b'{"error":') :]
    assert decode_refusal(spaced) == Refusal(rejections[0], start_time)
    with pytest.raises(ReplyFault):
        decode_refusal(b'{"error":{"code":"BACKPRESSURE"}}')


def test_details_are_json() -> None:
    """ERR-1: what has no canonical bytes is refused before it is sent."""
    with pytest.raises(CanonicalizationFault):
        encode_error(reject(Code.INTERNAL_ERROR, "x", details={"a": "\ud800"}), start_time)
