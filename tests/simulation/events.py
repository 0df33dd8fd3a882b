"""The Events of the simulated Groups: signed, chained, and the same for the same history in every run.

The chain is computed a second time here, from the definition (RULE-15), so that neither the builder nor the code under
test decides what follows what.
"""

import hashlib
from typing import Any, NamedTuple

from contracts.canonical import canonical_bytes
from contracts.documents.common import ActorType
from contracts.verification import RegisteredKey
from projections.proof import KnownKeys, SignatureProof
from tests.builders import BuiltEvent, build_event, identifier, message_payload, signing_key

organization = "urn:weavehold:organization:simulated"
authority_key = signing_key("authority", ActorType.SERVICE)
stranger_key = signing_key("stranger", ActorType.SERVICE)
large_first, large_every = 4, 13
"""The first Event of a Group that is larger than the simulated broker takes, and after how many the next one is."""
large_text = 3_000


class Fact(NamedTuple):
    """One Event as the log has it: `previous` and `chain` are the raw hashes before and after it."""

    group_id: str
    sequence: int
    event_id: str
    incarnation: str
    previous: bytes
    chain: bytes
    payload_hash: str
    raw: bytes
    built: BuiltEvent

    @property
    def is_large(self) -> bool:
        return len(self.raw) > large_text


def group_name(number: int) -> str:
    return f"urn:weavehold:group:simulated-{number}"


def incarnation_name(number: int) -> str:
    return f"{number:032x}"


def chain_start(group_id: str) -> bytes:
    """h_0 by definition."""
    return hashlib.sha256(f"weavehold/chain/1\n{organization}\n{group_id}".encode()).digest()


_made: dict[Any, Any] = {}
"""Events of all runs of this process: they are functions of their history, and costly to sign."""
made_max = 60_000


def _kept(key: Any, make: Any) -> Any:
    if key not in _made:
        if len(_made) >= made_max:
            _made.clear()
        _made[key] = make()
    return _made[key]


def next_event(previous: Fact | None, group_id: str, incarnation: str, branch: str) -> Fact:
    """The Event that follows `previous`; `branch` tells different continuations of one history apart."""
    key = (previous.chain if previous else None, group_id, incarnation, branch)
    return _kept(key, lambda: _fact(previous, group_id, incarnation, branch))


def _fact(previous: Fact | None, group_id: str, incarnation: str, branch: str) -> Fact:
    sequence = previous.sequence + 1 if previous else 1
    text = f"Message {sequence} {branch}." + ("x" * large_text if sequence % large_every == large_first else "")
    payload = message_payload(group_id, sequence, text=text)
    built = build_event(
        "message.posted",
        payload,
        authority_key,
        organization_id=organization,
        group_id=group_id,
        incarnation=incarnation,
        previous=previous.built.mark if previous else None,
        # Another continuation of the same history has other Event IDs, in the same incarnation too.
        eventId=identifier("simulated", group_id, incarnation, sequence, branch, repr(previous and previous.chain)),
    )
    before = previous.chain if previous else chain_start(group_id)
    chain = hashlib.sha256(before + built.signing_hash).digest()
    assert (built.mark.previous_hash, built.mark.chain_hash) == (before, chain), "the builder chains in another way"
    payload_hash = hashlib.sha256(canonical_bytes(payload)).hexdigest()
    return Fact(group_id, sequence, built.event.event_id, incarnation, before, chain, payload_hash, built.raw, built)


def forge(fact: Fact, kind: str) -> bytes:
    """Bytes that stand in for an Event: readable or not, never the authority's word."""
    match kind:
        case "rubbish":
            return b"rubbish" + fact.raw[:20]
        case "cut":
            return fact.raw[: len(fact.raw) // 2]
        case "text":
            return fact.raw.replace(b"Message ", b"Massage ", 1)
        case "signature":
            return fact.raw.replace(b'"value":"', b'"value":"AAAA', 1)
        case "far":
            return fact.raw.replace(f'"sequence":{fact.sequence},'.encode(), b'"sequence":900,', 1)
        case _:
            return _kept(("stranger", fact.chain), lambda: _of_a_stranger(fact.built))


forgeries = ("rubbish", "cut", "text", "signature", "far", "stranger")


def _of_a_stranger(built: BuiltEvent) -> bytes:
    """The next Event of the Group by the chain, signed by a key that the Organization does not have."""
    mark = built.mark
    previous = None
    if mark.sequence > 1:
        previous = type(mark)(
            mark.incarnation, mark.group_id, mark.sequence - 1, mark.previous_hash, mark.previous_hash
        )
    return build_event(
        "message.posted",
        message_payload(mark.group_id, mark.sequence, text="Never accepted."),
        stranger_key,
        organization_id=organization,
        group_id=mark.group_id,
        incarnation=mark.incarnation,
        previous=previous,
    ).raw


class _Registry:
    """The Organization's one key."""

    def resolve(self, key_id: str) -> RegisteredKey | None:
        if key_id != authority_key.key_id:
            return None
        return RegisteredKey(
            key_id=key_id,
            principal=authority_key.principal,
            public_key=authority_key.public_key,
            valid_from="2026-01-01T00:00:00Z",
        )


def proof() -> SignatureProof:
    """Judges Events by the authority's key."""
    return SignatureProof(KnownKeys(_Registry()))
