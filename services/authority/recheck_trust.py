"""Trust judged again under the locks: keys as they stand now, the admission log, and freshness (RULE-06, TRU-4, TRU-6)."""

from datetime import datetime, timedelta
from typing import Final

from contracts.bounds import freshness_future_seconds, freshness_past_seconds
from contracts.timestamps import format_timestamp, instant
from services.authority.admitted import Admitted, AuthenticationFailure, SignedFact
from services.authority.batch_facts import BatchFacts, mismatched_admission

_past: Final = timedelta(seconds=freshness_past_seconds)
_future: Final = timedelta(seconds=freshness_future_seconds)


def distrust(facts: BatchFacts, admitted: Admitted, accepted_at: datetime) -> AuthenticationFailure | None:
    """Why a new Command may not be admitted now, or None. `accepted_at` would be its acceptance time."""
    for fact in admitted.facts:
        if mismatched_admission(facts, fact):
            return _failure("admission", f"{fact.kind} was first admitted under other terms", admitted)
        if (fault := _key_fault(facts, fact, accepted_at)) is not None:
            return _failure("key-resolution", fault, admitted)
    issued = instant(admitted.command.issued_at)
    if not instant(format_timestamp(facts.now - _past)) <= issued <= instant(format_timestamp(facts.now + _future)):
        window = f"{freshness_past_seconds} s back and {freshness_future_seconds} s ahead of {facts.now.isoformat()}"
        return _failure("freshness", f"issuedAt {admitted.command.issued_at} is outside {window}", admitted)
    return None


def _key_fault(facts: BatchFacts, fact: SignedFact, accepted_at: datetime) -> str | None:
    """Why a key may not vouch for a document accepted now, or None. Intervals are half-open."""
    key = facts.keys.get(fact.key_id)
    if key is None or (key.principal_type, key.principal_id) != (fact.principal.type.value, fact.principal.id):
        return f"key {fact.key_id} is not registered for {fact.principal.id}"
    now = instant(format_timestamp(accepted_at))
    ends = [instant(end) for end in (key.valid_until, key.revoked_at) if end is not None]
    if instant(key.valid_from) > now or any(end <= now for end in ends):
        return f"key {fact.key_id} is not valid at the time of acceptance"
    return None


def _failure(stage: str, reason: str, admitted: Admitted) -> AuthenticationFailure:
    return AuthenticationFailure(
        stage=stage,
        reason=reason,
        key_id=admitted.fact.key_id,
        actor_id=admitted.command.actor.id,
        action_id=admitted.command.action_id,
        document_sha256=admitted.fact.signing_hash,
    )
