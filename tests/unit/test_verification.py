"""The six stages: their order, what each refuses, and what the wire may know of it."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.bounds import command_bytes_max
from contracts.canonical import CanonicalizationFault, ParseFault, canonical_bytes, parse_strict, signing_bytes
from contracts.chain import SigningHash
from contracts.document_kinds import DocumentKind
from contracts.documents.common import ActorType
from contracts.rejection import Code
from contracts.signature import SigningKey, base64url_bytes, base64url_text, group_order, sign_document
from contracts.verification import (
    RegisteredKey,
    RegistryFault,
    Stage,
    VerificationFailure,
    Verified,
    verify_document,
    verify_parsed,
)
from tests.builders import build_command, build_event, later, message_payload, signing_key, start_time, test_group
from tests.fuzz.signed_samples import keys as sample_keys
from tests.fuzz.signed_samples import samples
from tests.unit import edwards

worker = signing_key("worker")
authority = signing_key("authority", ActorType.SERVICE)
post = build_command("message.post", {"messageId": "urn:weavehold:message:1", "content": [{"n": 0.5}]}, worker)
command = DocumentKind.COMMAND


class Keys:
    """A registry of a few keys, all valid for the whole of 2026 unless said otherwise."""

    def __init__(self, *keys: SigningKey, **facts: Any) -> None:
        whole_year = {"valid_from": "2026-01-01T00:00:00Z", "valid_until": "2027-01-01T00:00:00Z"}
        self._keys = {
            key.key_id: RegisteredKey(
                **{
                    "key_id": key.key_id,
                    "principal": key.principal,
                    "public_key": key.public_key,
                    **whole_year,
                    **facts,
                }
            )
            for key in keys
        }

    def resolve(self, key_id: str) -> RegisteredKey | None:
        return self._keys.get(key_id)


class NoKeys:
    def resolve(self, key_id: str) -> RegisteredKey | None:
        raise RegistryFault(f"{key_id} is bound twice")


keys = Keys(worker, authority)


def outcome_of(document: dict[str, Any], resolver: Any = keys) -> Verified | VerificationFailure:
    return verify_document(command, json.dumps(document).encode(), resolver, command_bytes_max)


def stage_of(document: dict[str, Any], resolver: Any = keys) -> Stage | None:
    outcome = outcome_of(document, resolver)
    return outcome.stage if isinstance(outcome, VerificationFailure) else None


def changed(**members: Any) -> dict[str, Any]:
    """The good Command with other members; a value of None removes one. Not signed again."""
    return {name: value for name, value in {**post.document, **members}.items() if value is not None}


def signed(**members: Any) -> dict[str, Any]:
    """The good Command with other members, signed again."""
    document = changed(**members, signature=None)
    return parse_strict(sign_document(document, worker, document["issuedAt"]), command_bytes_max)


def with_signature(document: dict[str, Any] = post.document, **members: Any) -> dict[str, Any]:
    return {**document, "signature": {**document["signature"], **members}}


def good_signature() -> bytes:
    return base64url_bytes(post.document["signature"]["value"]) or b""


def test_a_good_document_is_complete() -> None:
    """TRU-1: signing hash, key, Principal, protected time, canonical bytes."""
    outcome = verify_document(command, post.raw, keys, command_bytes_max)
    assert isinstance(outcome, Verified)
    assert (outcome.key_id, outcome.principal) == (worker.key_id, worker.principal)
    assert outcome.protected_time == start_time
    assert outcome.canonical == signing_bytes(post.document)
    assert outcome.signing_hash == post.signing_hash
    assert outcome.document == post.document
    assert outcome.typed == post.command


def test_spelling_of_the_bytes_does_not_matter() -> None:
    """TRU-3: white space, order, escapes, 0.5 as 5e-1."""
    spelled = json.dumps(dict(reversed(post.document.items())), indent=3).replace("0.5", "5e-1").encode()
    outcome = verify_document(command, spelled, keys, command_bytes_max)
    assert isinstance(outcome, Verified)
    assert outcome.signing_hash == post.signing_hash


@pytest.mark.parametrize(
    ("raw", "stage"),
    [
        (b"\xef\xbb\xbf" + post.raw, Stage.PARSE),
        (post.raw + b"{}", Stage.PARSE),
        (post.raw.replace(b'"kind"', b'"kind":"message.post","kind"'), Stage.PARSE),
        (post.raw.replace(b'"content"', b'"content":' + b"[" * 10_000 + b"]" * 10_000 + b',"x"'), Stage.PARSE),
        (post.raw[:-1] + b',"x":"' + b"x" * command_bytes_max + b'"}', Stage.PARSE),
        (b"[]", Stage.SCHEMA),
        (b"null", Stage.SCHEMA),
        (b'{"\\ud800":1}', Stage.SCHEMA),
        (post.raw.replace(b'"0.1"', b'"0.2"'), Stage.SCHEMA),
        (post.raw.replace(b"urn:weavehold:group:test", b"urn:weavehold:group:test\\u0000"), Stage.SCHEMA),
        (post.raw.replace(b"urn:weavehold:group:test", b"urn:weavehold:group:test\\n"), Stage.SCHEMA),
        (post.raw.replace(b'"membershipEpoch":1', b'"membershipEpoch":9007199254740993'), Stage.SCHEMA),
        (post.raw.replace(b'"membershipEpoch":1', b'"membershipEpoch":1e400'), Stage.SCHEMA),
        (post.raw.replace(b'"membershipEpoch":1', b'"membershipEpoch":1.5'), Stage.SCHEMA),
        (post.raw.replace(b'"n":0.5', b'"n":"\\ud800"'), Stage.CANONICALIZATION),
        (post.raw.replace(b'"n":0.5', b'"\\udc00":0.5'), Stage.CANONICALIZATION),
        (post.raw.replace(b'"n":0.5', b'"n":1e400'), Stage.CANONICALIZATION),
        (post.raw.replace(b'"n":0.5', b'"n":' + b"9" * 400), Stage.CANONICALIZATION),
        (post.raw.replace(b'"n":0.5', b'"n":0.50000000000000011102'), Stage.SIGNATURE),
    ],
)
def test_bytes_that_no_stage_may_pass(raw: bytes, stage: Stage) -> None:
    """ACC-5, TRU-1: U+0000, surrogates, 2^53+1, 1e400, repeated names, depth and size bombs, each at its stage."""
    outcome = verify_document(command, raw, keys, command_bytes_max)
    assert isinstance(outcome, VerificationFailure)
    assert outcome.stage is stage, outcome.reason
    assert outcome.reason.isprintable()


def test_an_integral_float_is_an_integer() -> None:
    """ACC-5: JSON Schema's integer accepts 1.0, and the canonical bytes are those of 1."""
    raw = post.raw.replace(b'"membershipEpoch":1', b'"membershipEpoch":1.0')
    outcome = verify_document(command, raw, keys, command_bytes_max)
    assert isinstance(outcome, Verified)
    assert outcome.signing_hash == post.signing_hash


def test_u0000_in_free_content_is_kept() -> None:
    """ACC-5: what PostgreSQL's `jsonb` cannot hold is signed, verified and canonical like any other text."""
    document = signed(payload={"text": "a\0b"})
    outcome = outcome_of(document)
    assert isinstance(outcome, Verified)
    assert b'"a\\u0000b"' in outcome.canonical


def envelope(**members: Any) -> Callable[[], dict[str, Any]]:
    return lambda: with_signature(**members)


def value_of(r: bytes = b"", s: int | None = None) -> str:
    good = good_signature()
    return base64url_text((r or good[:32]) + (good[32:] if s is None else s.to_bytes(32, "little")))


torsion = edwards.torsion_point()
s_of_post = int.from_bytes(good_signature()[32:], "little")
broken_envelopes: dict[str, Callable[[], dict[str, Any]]] = {
    "created-at-other-text": envelope(createdAt="2026-07-15T08:00:00.00Z"),
    "created-at-other-instant": envelope(createdAt=later(start_time, 1)),
    "lower-case-z": lambda: signed(issuedAt="2026-07-15T08:00:00z"),
    "offset-zero": lambda: signed(issuedAt="2026-07-15T08:00:00+00:00"),
    "63-bytes": envelope(value=base64url_text(good_signature()[:63])),
    "65-bytes": envelope(value=base64url_text(good_signature() + b"\0")),
    "unused-bits-set": lambda: with_signature(value=post.document["signature"]["value"][:-1] + "B"),
    "s-plus-order": lambda: with_signature(value=value_of(s=s_of_post + group_order)),
    "s-is-order": lambda: with_signature(value=value_of(s=group_order)),
    "r-small-order": lambda: with_signature(value=value_of(edwards.encode(torsion))),
    "r-mixed-order": lambda: with_signature(value=value_of(edwards.encode(edwards.add(torsion, edwards.base)))),
    "r-off-curve": lambda: with_signature(value=value_of((2).to_bytes(32, "little"))),
    "r-identity-with-sign": lambda: with_signature(value=value_of(bytes([1]) + bytes(30) + b"\x80")),
    "r-not-reduced": lambda: with_signature(value=value_of((edwards.p + 3).to_bytes(32, "little"))),
}


@pytest.mark.parametrize("name", broken_envelopes)
def test_signature_envelope(name: str) -> None:
    """TRU-1: createdAt byte-equal to the protected time in uppercase-Z UTC, one base64url, R and S canonical.

    The third stage comes before the key: an unknown key, an invalid registry, a lone surrogate change nothing.
    """
    document = broken_envelopes[name]()
    assert stage_of(document) is Stage.SIGNATURE_ENVELOPE
    assert stage_of(document, Keys()) is Stage.SIGNATURE_ENVELOPE
    assert stage_of(document, NoKeys()) is Stage.SIGNATURE_ENVELOPE
    assert stage_of({**document, "payload": {"x": "\ud800"}}) is Stage.SIGNATURE_ENVELOPE


@given(st.integers(0, 2**256 - 1) | st.integers(-3, 3).map(lambda near: group_order + near))
@settings(max_examples=100, deadline=None)
def test_s_is_below_the_order(s: int) -> None:
    """TRU-1: whether or not its highest byte settles it."""
    expected = Stage.SIGNATURE if s < group_order else Stage.SIGNATURE_ENVELOPE
    assert stage_of(with_signature(value=value_of(s=s))) is (None if s == s_of_post else expected)


def test_padding_is_already_no_base64url_of_the_schema() -> None:
    """TRU-1: padded base64url fails at the schema, with the schema's error."""
    outcome = outcome_of(with_signature(value=post.document["signature"]["value"] + "=="))
    assert isinstance(outcome, VerificationFailure)
    assert outcome.stage is Stage.SCHEMA
    assert stage_of(with_signature(algorithm="ed25519")) is Stage.SCHEMA


def test_the_identity_as_r_is_judged_by_the_equation() -> None:
    """TRU-1: allowed in the envelope; the signature decides."""
    assert stage_of(with_signature(value=value_of(edwards.encode(edwards.identity)))) is Stage.SIGNATURE
    seed = bytes(32)
    key = SigningKey("urn:weavehold:key:zero", worker.principal, seed)
    unsigned = with_signature(keyId=key.key_id)
    value = edwards.sign_with_r(seed, key.public_key, signing_bytes(unsigned), nonce=0)
    assert isinstance(outcome_of(with_signature(unsigned, value=base64url_text(value)), Keys(key)), Verified)


def test_key_resolution() -> None:
    """TRU-2: an unknown key, another's key, a registry that is not valid as a whole; all before canonicalization."""
    lone = with_signature({**post.document, "payload": {"x": "\ud800"}})
    for resolver in (Keys(), Keys(authority), NoKeys(), Keys(worker, principal=authority.principal)):
        assert stage_of(post.document, resolver) is Stage.KEY_RESOLUTION
        assert stage_of(lone, resolver) is Stage.KEY_RESOLUTION
    same_id_other_type = signing_key("worker", ActorType.HUMAN).principal
    assert stage_of(post.document, Keys(worker, principal=same_id_other_type)) is Stage.KEY_RESOLUTION


@pytest.mark.parametrize(
    ("facts", "valid"),
    [
        ({"valid_from": start_time}, True),
        ({"valid_from": "2026-07-15T16:00:00+08:00"}, True),
        ({"valid_from": "2026-07-15T08:00:00.000000000000000001Z"}, False),
        ({"valid_until": start_time}, False),
        ({"valid_until": "2026-07-15T16:00:00.000+08:00"}, False),
        ({"valid_until": "2026-07-15T08:00:00.000000000001Z"}, True),
        ({"valid_until": None}, True),
        ({"revoked_at": start_time}, False),
        ({"revoked_at": later(start_time, 1)}, True),
        ({"revoked_at": later(start_time, -1), "valid_until": None}, False),
        ({"revoked_at": later(start_time, 1), "valid_until": later(start_time, -1)}, False),
    ],
)
def test_validity_is_half_open_and_exact(facts: dict[str, Any], *, valid: bool) -> None:
    """TRU-2: from `valid_from` up to, not including, the earlier of the two ends, to the last fraction digit."""
    assert stage_of(post.document, Keys(worker, **facts)) is (None if valid else Stage.KEY_RESOLUTION)


@pytest.mark.parametrize("facts", [{"valid_from": ""}, {"valid_until": "never"}, {"revoked_at": "2026-07-15"}])
def test_an_unreadable_validity_is_no_validity(facts: dict[str, Any]) -> None:
    """TRU-2, TRU-4: what is uncertain fails closed."""
    assert stage_of(post.document, Keys(worker, **facts)) is Stage.KEY_RESOLUTION


@pytest.mark.parametrize("name", ["small", "identity", "mixed"])
def test_a_weak_registered_key_is_no_key(name: str) -> None:
    """TRU-2: also when the registry itself was filled past its own checks."""
    weak = {
        "small": edwards.encode(torsion),
        "identity": edwards.encode(edwards.identity),
        "mixed": edwards.encode(edwards.add(torsion, edwards.multiply(edwards.secret_scalar(bytes(32)), edwards.base))),
    }[name]
    forged = with_signature(value=base64url_text(edwards.encode(edwards.identity) + bytes(32)))
    assert stage_of(forged, Keys(worker, public_key=weak)) is Stage.KEY_RESOLUTION


@pytest.mark.parametrize(
    "members",
    [
        {"payload": {"messageId": "urn:weavehold:message:2"}},
        {"groupId": "urn:weavehold:group:other"},
        {"expectedRevision": 1},
        {"extensions": {"urn:weavehold:extension:x": {"version": "1.0.0", "critical": False, "data": None}}},
    ],
)
def test_every_member_is_covered(members: dict[str, Any]) -> None:
    """TRU-1 signature: a changed or added member, known or extension."""
    assert stage_of(changed(**members)) is Stage.SIGNATURE


def test_each_kind_names_its_signer() -> None:
    """TRU-1: an Event's signer is who accepted it, whoever acted."""
    event = build_event("message.posted", message_payload(test_group, 1), authority, actor=worker.principal)
    verified = verify_document(DocumentKind.EVENT, event.raw, keys, command_bytes_max)
    assert isinstance(verified, Verified)
    assert verified.principal == authority.principal
    assert verified.signing_hash == event.signing_hash
    by_actor = build_event(
        "message.posted",
        message_payload(test_group, 1),
        worker,
        acceptedBy={"type": "service", "id": authority.principal.id},
    )
    outcome = verify_document(DocumentKind.EVENT, by_actor.raw, keys, command_bytes_max)
    assert isinstance(outcome, VerificationFailure)
    assert outcome.stage is Stage.KEY_RESOLUTION


def test_a_document_inside_another_is_verified_alike() -> None:
    """TRU-1: a nested document was parsed with its surroundings; all other stages are its own."""
    inner = parse_strict(canonical_bytes({"card": post.document}), command_bytes_max)["card"]
    outcome = verify_parsed(command, inner, keys)
    assert isinstance(outcome, Verified)
    assert outcome.signing_hash == SigningHash(post.signing_hash)
    assert isinstance(verify_parsed(command, [inner], keys), VerificationFailure)


def test_the_wire_learns_nothing_of_keys_and_signatures() -> None:
    """TRU-5, ERR-1: parse and canonicalization are protocol violations, the rest of authentication looks the same."""
    codes = {stage: stage.wire_code for stage in Stage}
    assert codes == {
        Stage.PARSE: Code.PROTOCOL_VIOLATION,
        Stage.SCHEMA: Code.SCHEMA_VALIDATION_FAILED,
        Stage.SIGNATURE_ENVELOPE: Code.AUTH_INVALID_SIGNATURE,
        Stage.KEY_RESOLUTION: Code.AUTH_INVALID_SIGNATURE,
        Stage.CANONICALIZATION: Code.PROTOCOL_VIOLATION,
        Stage.SIGNATURE: Code.AUTH_INVALID_SIGNATURE,
    }


def test_an_old_command_still_verifies() -> None:
    """TRU-6: freshness is no matter of the signature; the key's validity at the protected time is."""
    old = signed(issuedAt=later(start_time, -timedelta(days=150).total_seconds()))
    assert stage_of(old) is None
    too_old = signed(issuedAt=later(start_time, -timedelta(days=300).total_seconds()))
    assert stage_of(too_old) is Stage.KEY_RESOLUTION


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_bytes_end_at_a_stage(data: st.DataObject) -> None:
    """TRU-1, ACC-5: whatever is changed, a stage says so, nothing else escapes, and only the good hash passes."""
    raw = bytearray(post.raw)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        pieces = st.binary(max_size=3) | st.sampled_from(
            [b'"', b"\\ud800", b"\\u0000", b"1e999", b"[", b"{}", b"null", b":"]
        )
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(pieces)
    outcome = verify_document(command, bytes(raw), keys, command_bytes_max)
    if isinstance(outcome, Verified):
        assert outcome.signing_hash == post.signing_hash
    else:
        assert outcome.reason.encode()


def verdict(outcome: Verified | VerificationFailure) -> tuple[Any, ...]:
    """All that an outcome says."""
    if isinstance(outcome, VerificationFailure):
        return outcome.stage, outcome.reason
    return (
        outcome.kind,
        outcome.signing_hash,
        outcome.key_id,
        outcome.principal,
        outcome.protected_time,
        outcome.canonical,
        repr(outcome.typed),
        repr(outcome.document),
    )


def verdict_step_by_step(kind: DocumentKind, raw: bytes, resolver: Any) -> tuple[Any, ...]:
    """The same by parse, schema and definition of the signing bytes one after another, without any short cut."""
    try:
        document = parse_strict(raw, command_bytes_max)
    except ParseFault as fault:
        return Stage.PARSE, str(fault)
    outcome = verify_parsed(kind, document, resolver)
    if isinstance(outcome, Verified):
        assert outcome.canonical == signing_bytes(document)
    return verdict(outcome)


spellings: list[Callable[[dict[str, Any]], bytes]] = [
    canonical_bytes,
    lambda document: json.dumps(document).encode(),
    lambda document: json.dumps(document, separators=(",", ":")).encode(),
    lambda document: json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode(),
    lambda document: json.dumps(document, ensure_ascii=False, indent=1).encode(),
]
members_to_add = st.sampled_from(
    [
        {},
        {"signature": {"value": "nested"}},
        {"n": 1.5},
        {"n": 2**53 + 1},
        {"n": -0.0, "text": "x" * 203},
        {"\U0001f600": 1, "\ue000": 2},
        {"text": "Résumé 東京 🚀\u2028\0"},
        {"deep": [[[{"signature": None}]]]},
    ]
)
damages = st.sampled_from(
    [
        (b"", b""),
        (b'"signature":', b'"signature":{},"signature":'),
        (b'"signature":', b'"\\u0073ignature":'),
        (b'"issuedAt":', b'"issuedAt":"2026-07-15T08:00:00Z","issuedAt":'),
        (b'"0.1"', b'"0.\\u0031"'),
        (b":1,", b":1.0,"),
        (b":1,", b":1e0,"),
        (b":1,", b":-1,"),
        (b":1,", b":9007199254740992,"),
        (b"Z", b"z"),
        (b"{", b'{"signature":1,'),
        (b"urn:", b"\\ud800"),
        (b"}", b',"zz":1}'),
        (b"urn:weavehold:", b"urn:weavehold: "),
        (b'"value":"', b'"value":"A'),
    ]
)


@pytest.mark.parametrize("kind", DocumentKind, ids=lambda kind: kind.value)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_short_cut_changes_a_verdict(kind: DocumentKind, data: st.DataObject) -> None:
    """TRU-1, TRU-3: bytes of every spelling and damage end as they do when the stages are taken one by one."""
    document = json.loads(canonical_bytes(samples[kind]))
    added = data.draw(members_to_add)
    if added and "payload" in document:
        document["payload"] |= added
        if kind is DocumentKind.COMMAND:
            document["issuedAt"] = "2026-07-15T08:00:00Z"
    raw = data.draw(st.sampled_from(spellings))(document)
    old, new = data.draw(damages)
    at = data.draw(st.integers(0, max(0, raw.count(old) - 1))) if old else 0
    parts = raw.split(old) if old else [raw]
    if len(parts) > 1:
        raw = old.join(parts[: at + 1]) + new + old.join(parts[at + 1 :])
    outcome = verify_document(kind, raw, sample_keys, command_bytes_max)
    assert verdict(outcome) == verdict_step_by_step(kind, raw, sample_keys)


@given(
    st.dictionaries(st.text(max_size=4), st.text(max_size=220) | st.integers() | st.floats(), max_size=4), st.booleans()
)
@settings(max_examples=100, deadline=None)
def test_a_payload_of_any_kind_verifies_by_every_road(payload: dict[str, Any], with_work_item: bool) -> None:
    """TRU-1, TRU-3: signed here, canonical on the wire or not, with and without a member behind the signature."""
    members = {"workItemId": "urn:weavehold:work-item:1"} if with_work_item else {}
    try:
        document = signed(payload={"signature": payload, "data": payload}, **members)
    except CanonicalizationFault:
        return
    for spell in spellings:
        outcome = verify_document(command, spell(document), keys, command_bytes_max)
        assert isinstance(outcome, Verified)
        assert outcome.canonical == signing_bytes(document)
        assert outcome.document == document


def test_canonical_bytes_take_the_short_cut() -> None:
    """TRU-1: what clients send is decoded once; `source` tells which road was taken."""
    plain = signed(payload={"text": "é"})
    outcome = verify_document(command, canonical_bytes(plain), keys, command_bytes_max)
    assert isinstance(outcome, Verified)
    assert outcome.source == canonical_bytes(plain)
    other = verify_document(command, json.dumps(plain).encode(), keys, command_bytes_max)
    assert isinstance(other, Verified)
    assert other.source == plain
    assert other.document == outcome.document
