"""Answers as reply bytes. The error's time is this process's clock: it informs, nothing is decided by it."""

from datetime import UTC, datetime

from contracts.rejection import Rejection
from contracts.reply import encode_error, encode_receipt
from contracts.timestamps import format_timestamp
from services.authority.admitted import Accepted, Answer, LateRecorded


def encode_answer(answer: Answer) -> bytes:
    """`{"receipt": …}` or `{"error": …}`; a late result is an error to its sender, also on a retry (RULE-02)."""
    match answer:
        case Accepted(receipt):
            return encode_receipt(receipt)
        case LateRecorded(_, rejection):
            return encode_rejection(rejection)
        case Rejection():
            return encode_rejection(answer)


def encode_rejection(rejection: Rejection) -> bytes:
    """`{"error": …}` with the present time."""
    return encode_error(rejection, format_timestamp(datetime.now(UTC)))
