"""Bytes and sizes made to deceive or to exhaust, all the way through the six stages (TRU-1, TRU-3, ACC-5)."""

import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from contracts.bounds import command_bytes_max
from contracts.canonical import canonical_bytes
from contracts.document_kinds import DocumentKind
from contracts.rejection import Code, Rejection, reject
from contracts.reply import decode_reply, encode_error
from contracts.verification import Stage, VerificationFailure, Verified, verify_document
from services.authority.admit import admit_one
from services.authority.admitted import Refused
from tests.fuzz.signed_samples import keys, samples, signing_keys

command = DocumentKind.COMMAND
signer = signing_keys[0]
large = 64 * 1024 * 1024
"""A limit in bytes that no test reaches: the work behind the door must stay bounded without it."""


def signed(payload: Any, **members: Any) -> dict[str, Any]:
    """The sample Command with this payload, validly signed."""
    unsigned = {**samples[command], "payload": payload, **members}
    del unsigned["signature"]
    value = signer.sign(canonical_bytes(unsigned))
    return {**unsigned, "signature": {**samples[command]["signature"], "value": value}}


marked = canonical_bytes(signed({"at": "here", "member here": 1, "number": 0, "deep": {"a": {"b": 1}}}))


def outcome_of(raw: bytes, limit: int = command_bytes_max) -> Verified | VerificationFailure:
    return verify_document(command, raw, keys, limit)


def stage_of(raw: bytes, limit: int = command_bytes_max) -> Stage | None:
    outcome = outcome_of(raw, limit)
    if isinstance(outcome, Verified):
        return None
    # Whatever the reason is, it can be put into a reply and read there.
    reply = encode_error(reject(outcome.stage.wire_code, outcome.reason), "2026-07-15T00:00:00.000000Z")
    assert isinstance(decode_reply(reply), Rejection)
    return outcome.stage


no_utf_8 = {
    "overlong-slash": b"\xc0\xaf",
    "overlong-nul": b"\xc0\x80",
    "overlong-quote-in-two": b"\xc0\xa2",
    "overlong-in-three": b"\xe0\x80\xaf",
    "overlong-in-four": b"\xf0\x80\x80\xaf",
    "overlong-in-five": b"\xf8\x80\x80\x80\xaf",
    "overlong-in-six": b"\xfc\x80\x80\x80\x80\xaf",
    "overlong-two-for-three": b"\xe0\x9f\xbf",
    "overlong-three-for-four": b"\xf0\x8f\xbf\xbf",
    "high-surrogate": b"\xed\xa0\x80",
    "low-surrogate": b"\xed\xbf\xbf",
    "surrogate-pair": b"\xed\xa0\xbd\xed\xb8\x80",
    "beyond-unicode": b"\xf4\x90\x80\x80",
    "cut-in-two": b"\xc3",
    "cut-in-three": b"\xe2\x82",
    "cut-in-four": b"\xf0\x9f\x98",
    "continuation-alone": b"\x80",
    "impossible": b"\xfe\xff",
    "latin-1": b"\xe9",
}


@pytest.mark.parametrize("name", no_utf_8)
def test_what_is_no_utf_8_fails_the_parse(name: str) -> None:
    """ACC-5, TRU-1: overlong forms, surrogates written as UTF-8, sequences cut short: in texts, names, at the end."""
    bad = no_utf_8[name]
    for raw in (
        marked.replace(b'"here"', b'"he' + bad + b're"'),
        marked.replace(b'"member here"', b'"member ' + bad + b'here"'),
        marked.replace(b'"keyId"', b'"key' + bad + b'Id"'),
        marked.replace(b'"here"', b'"' + bad + b'"'),
        bad + marked,
        marked + bad,
        marked[:-1] + bad,
    ):
        assert raw != marked
        assert stage_of(raw) is Stage.PARSE


broken_texts = {
    "byte-order-mark": b"\xef\xbb\xbf" + marked,
    "byte-order-mark-behind": marked + b"\xef\xbb\xbf",
    "utf-16": marked.decode().encode("utf-16"),
    "utf-16-plain": marked.decode().encode("utf-16-le"),
    "utf-32": marked.decode().encode("utf-32"),
    "nul-before": b"\0" + marked,
    "nul-behind": marked + b"\0",
    "nul-between": marked.replace(b'"here",', b'"here"\0,'),
    "nul-in-text": marked.replace(b'"here"', b'"he\0re"'),
    "nul-in-name": marked.replace(b'"member here"', b'"member\0here"'),
    "control-in-text": marked.replace(b'"here"', b'"he\x1bre"'),
    "no-break-space-between": marked.replace(b'"here",', b'"here"\xc2\xa0,'),
    "line-separator-between": marked.replace(b'"here",', b'"here"\xe2\x80\xa8,'),
    "form-feed-between": marked.replace(b'"here",', b'"here"\x0c,'),
    "comment": marked.replace(b'"here",', b'"here"/**/,'),
    "trailing-comma": marked.replace(b'{"b":1}', b'{"b":1,}'),
    "trailing-value": marked + b"0",
    "trailing-document": marked + b"\n" + marked,
    "trailing-brace": marked + b"}",
    "unclosed": marked[:-1],
    "unquoted-name": marked.replace(b'"number":0', b"number:0"),
    "single-quotes": marked.replace(b'"here"', b"'here'"),
    "bad-escape": marked.replace(b'"here"', b'"he\\xre"'),
    "short-escape": marked.replace(b'"here"', b'"\\u12"'),
    "half-escape-at-end-of-text": marked.replace(b'"here"', b'"\\ud83d\\u"'),
    "plus": marked.replace(b'"number":0', b'"number":+0'),
    "leading-zero": marked.replace(b'"number":0', b'"number":00'),
    "hexadecimal": marked.replace(b'"number":0', b'"number":0x0'),
    "full-width-digit": marked.replace(b'"number":0', '"number":\uff10'.encode()),
    "not-a-number": marked.replace(b'"number":0', b'"number":NaN'),
    "infinity": marked.replace(b'"number":0', b'"number":-Infinity'),
    "100,000-brackets": marked.replace(b'"number":0', b'"number":' + b"[" * 100_000 + b"]" * 100_000),
    "100,000-open-brackets": b"[" * 100_000,
    "100,000-open-members": b'{"a":' * 50_000,
    "deep-and-cut": b'{"a":[' * 30_000 + b'"',
    "name-twice": marked.replace(b'"number":0', b'"number":0,"number":0'),
    "name-twice-by-escape": marked.replace(b'"number":0', b'"number":0,"\\u006eumber":0'),
    "name-twice-by-two-escapes": marked.replace(b'"number":0', b'"number":0,"\\ud83d\\ude00":0,"\xf0\x9f\x98\x80":1'),
    "name-twice-deep": marked.replace(b'{"b":1}', b'{"b":1,"\\u0062":2}'),
    "name-twice-beside-colons": marked.replace(b'"number":0', b'"number":"::::","number":0'),
    "surrogate-name-twice": marked.replace(b'"number":0', b'"\\ud800":0,"\\uD800":1'),
    "signature-twice": marked.replace(b'"signature":', b'"signature":{},"signature":'),
    "signature-twice-by-escape": marked.replace(b'"signature":', b'"\\u0073ignature":{},"signature":'),
    "name-twice-in-extensions": marked.replace(b'"data":{"n":0.5}', b'"data":{"n":0.5,"\\u006e":0.5}'),
    "extension-twice": marked.replace(b'"urn:x:y":', b'"urn:x\\u003ay":{},"urn:x:y":'),
    "name-twice-in-signature": marked.replace(b'"value":', b'"value":"AA","value":'),
}


@pytest.mark.parametrize("name", broken_texts)
def test_what_is_not_one_strict_text_fails_the_parse(name: str) -> None:
    """ACC-5, TRU-1: marks, other encodings, NUL, lax spellings, trailing data, depth, names twice wherever they are."""
    assert broken_texts[name] != marked
    assert stage_of(broken_texts[name]) is Stage.PARSE


same_texts = {
    "white-space": b" \t\r\n" + marked.replace(b":", b" :\n ").replace(b"urn :\n ", b"urn:") + b"\n",
    "minus-zero": marked.replace(b'"number":0', b'"number":-0'),
    "minus-zero-point-zero": marked.replace(b'"number":0', b'"number":-0.0'),
    "zero-point-zero": marked.replace(b'"number":0', b'"number":0.0'),
    "zero-with-exponent": marked.replace(b'"number":0', b'"number":0e99999'),
    "too-small-for-binary64": marked.replace(b'"number":0', b'"number":1e-400'),
    "one-point-zero": marked.replace(b'"sessionEpoch":1', b'"sessionEpoch":1.0'),
    "ten-to-the-minus-one": marked.replace(b'"sessionEpoch":1', b'"sessionEpoch":10E-1'),
    "one-with-100,000-zeros": marked.replace(b'"sessionEpoch":1', b'"sessionEpoch":1.' + b"0" * 100_000),
    "escaped": marked.replace(b'"here"', b'"\\u0068\\u0065re"'),
    "escaped-name": marked.replace(b'"member here"', b'"member\\u0020here"'),
    "escaped-signature": marked.replace(b'"signature":', b'"\\u0073ignature":'),
}


@pytest.mark.parametrize("name", same_texts)
def test_other_spellings_of_the_same_data_have_the_same_hash(name: str) -> None:
    """TRU-3, ACC-5: -0, 1.0, 1e-400 and escapes are ways to write data: one signing hash, one admission."""
    raw = same_texts[name]
    if name == "white-space":
        # Colons inside texts stay as they are: only those between names and values may have space around them.
        raw = json.dumps(json.loads(marked), indent="\t", separators=(" ,\r", " : ")).encode()
    assert raw != marked
    outcome, plain = outcome_of(raw), outcome_of(marked)
    assert isinstance(outcome, Verified), outcome
    assert isinstance(plain, Verified)
    assert (outcome.canonical, outcome.signing_hash) == (plain.canonical, plain.signing_hash)


@pytest.mark.parametrize(
    ("number", "stage"),
    [
        (b"1e400", Stage.CANONICALIZATION),
        (b"-1e309", Stage.CANONICALIZATION),
        (b"1" + b"0" * 309, Stage.CANONICALIZATION),
        (b"9" * 100_000, Stage.CANONICALIZATION),
        (b"1e" + b"9" * 100_000, Stage.CANONICALIZATION),
        (b"1.7976931348623157e308", Stage.SIGNATURE),
        (b"1", Stage.SIGNATURE),
        (b"9007199254740993", Stage.SIGNATURE),
        (b"5e-324", Stage.SIGNATURE),
    ],
    ids=lambda value: str(value)[:24],
)
def test_numbers_end_at_their_stage(number: bytes, stage: Stage) -> None:
    """ACC-5, TRU-3: beyond binary64 nothing has canonical bytes; what binary64 holds is another document."""
    assert stage_of(marked.replace(b'"number":0', b'"number":' + number)) is stage


def test_integers_beyond_2_53_mean_their_binary64() -> None:
    """ACC-5, TRU-3: 2^53+1 is written 2^53 in the canonical bytes; where an integer is asked for, neither is one."""
    raw = canonical_bytes(signed({"n": 2.0**53}))
    other = outcome_of(raw.replace(b"9007199254740992", b"9007199254740993"))
    assert isinstance(other, Verified)
    assert b"9007199254740992" in other.canonical
    for epoch in (b"9007199254740992", b"9007199254740993", b"1e300", b"1.5", b"-1", b"0", b"true", b'"1"'):
        assert stage_of(marked.replace(b'"sessionEpoch":1', b'"sessionEpoch":' + epoch)) is Stage.SCHEMA


@pytest.mark.parametrize("surrogate", [b"\\ud800", b"\\udfff", b"\\ude00\\ud83d", b"\\ud83d\\ud83d"])
def test_lone_surrogates_end_at_their_stage(surrogate: bytes) -> None:
    """ACC-5, TRU-3: in open data at canonicalization; in a name or text of the schema there, in whatever place."""
    open_places = (b'"here"', b'"member here"')
    closed_places = (b'"urn:x:y"', b'"work.start"', b'"keyId"', b'"Ed25519"', b'"agent"', b'"issuedAt"')
    for place, stage in [
        *((place, Stage.CANONICALIZATION) for place in open_places),
        *((place, Stage.SCHEMA) for place in closed_places),
    ]:
        raw = marked.replace(place, place[:-1] + surrogate + b'"')
        assert raw != marked
        assert stage_of(raw) is stage, place


# Sizes.


def measured(work: Callable[[], Any]) -> tuple[float, int]:
    """CPU seconds and the most bytes allocated at once, each from a run of its own."""
    gc.collect()
    started = time.process_time()
    work()
    seconds = time.process_time() - started
    tracemalloc.start()
    try:
        work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return seconds, peak


@pytest.mark.parametrize("filling", [b'"' + b"x" * 50_000_000 + b'"', b"[" * 50_000_000, b" " * 50_000_000])
def test_a_document_that_is_too_large_is_never_read(filling: bytes) -> None:
    """ACC-5, RULE-09: 50 MB in the process already: refused by its length, without a look and without a copy."""
    for work in (lambda: outcome_of(filling), lambda: admit_one(filling, keys)):
        seconds, peak = measured(work)
        assert (seconds < 0.05, peak < 100_000) == (True, True), (seconds, peak)
    assert stage_of(filling) is Stage.PARSE
    refused = admit_one(filling, keys)
    assert isinstance(refused, Refused)
    assert (refused.rejection.code, refused.failure) == (Code.PROTOCOL_VIOLATION, None)
    assert str(command_bytes_max) in refused.rejection.message


def many_members(count: int) -> Any:
    return {f"member {number}": number for number in range(count)}


def many_escaped_members(count: int) -> Any:
    return {f"{number}: é\n\U0001f600\ue000": number + 0.5 for number in range(count)}


growing: dict[str, Callable[[int], Any]] = {
    "members": many_members,
    "members-of-the-full-road": many_escaped_members,
    "numeric-names": lambda count: {str(number): None for number in range(count)},
    "items": lambda count: {"items": list(range(count))},
    "fractions": lambda count: {"items": [number + 0.1 for number in range(count)]},
    "empty-objects": lambda count: {"items": [{} for _ in range(count)]},
    "empty-texts": lambda count: {"items": ["" for _ in range(count)]},
    "a-long-name": lambda count: {"n" * (count * 20): 1},
    "a-long-name-of-the-full-road": lambda count: {"\U0001f600\ue000\n" * (count * 3): 0.5},
    "a-long-text": lambda count: {"text": '\\"\n:' * (count * 5)},
}


@pytest.mark.parametrize("name", growing)
def test_verification_is_linear(name: str) -> None:
    """ACC-5: ten times as many members, items or signs take at most some ten times as long, and all verify."""
    seconds = []
    for count, runs in ((10_000, 3), (100_000, 1)):
        raw = json.dumps(signed(growing[name](count)), ensure_ascii=False).encode()
        taken = []
        for _ in range(runs):
            started = time.process_time()
            assert stage_of(raw, large) is None
            taken.append(time.process_time() - started)
        seconds.append(min(taken))
    assert seconds[1] < 3.0
    # Below some milliseconds the clock says nothing.
    assert seconds[1] / max(seconds[0], 0.002) < 40, seconds


closed: dict[str, Callable[[int], dict[str, Any]]] = {
    "extensions": lambda count: {
        "extensions": {
            f"urn:x:{number}": {"version": "1.0.0", "critical": False, "data": None} for number in range(count)
        }
    },
    "unknown-members": lambda count: {f"x{number}": 1 for number in range(count)},
    "a-long-identifier": lambda count: {"groupId": "urn:x:" + "y" * (count * 20)},
    "a-long-kind": lambda count: {"kind": "ext." + "a." * (count * 10)},
    "a-long-time": lambda count: {"issuedAt": "2026-07-15T00:00:00." + "0" * (count * 20) + "x"},
}


@pytest.mark.parametrize("name", closed)
def test_the_schema_is_linear(name: str) -> None:
    """ACC-5: as much of what the schema looks at closely takes as little, and what is said of it stays short."""
    seconds = []
    for count, runs in ((4_000, 3), (40_000, 1)):
        raw = json.dumps(signed({}, **closed[name](count))).encode()
        taken = []
        for _ in range(runs):
            started = time.process_time()
            stage = stage_of(raw, large)
            taken.append(time.process_time() - started)
        assert stage is (None if name == "extensions" else Stage.SCHEMA)
        seconds.append(min(taken))
    assert seconds[1] < 2.0
    assert seconds[1] / max(seconds[0], 0.002) < 40, seconds


def test_a_protected_time_of_a_million_digits_is_compared_exactly() -> None:
    """TRU-3, ACC-5: any number of fraction digits, in linear time."""
    for digits in ("0" * 1_000_000, "0" * 999_999 + "1"):
        moment = f"2026-07-15T00:00:00.{digits}Z"
        document = signed({}, issuedAt=moment)
        document["signature"]["createdAt"] = moment
        raw = canonical_bytes(document)
        started = time.process_time()
        assert stage_of(raw, large) is None
        assert time.process_time() - started < 1.0
        document["signature"]["createdAt"] = moment.replace(digits, digits[:-1])
        assert stage_of(canonical_bytes(document), large) is Stage.SIGNATURE_ENVELOPE


def test_a_name_of_a_megabyte_is_not_repeated_in_what_is_said() -> None:
    """ACC-5, ERR-1: an unknown member with a long name: the reply stays within the schema's 2,000 characters."""
    outcome = outcome_of(json.dumps({**samples[command], "x" * 1_000_000: 1}).encode(), large)
    assert isinstance(outcome, VerificationFailure)
    assert outcome.stage is Stage.SCHEMA
    assert len(reject(Code.SCHEMA_VALIDATION_FAILED, outcome.reason).message) <= 2_000
