"""Trust judged again under the locks: keys as they stand now, the admission log, freshness (RULE-06, TRU-4, TRU-6)."""

from datetime import datetime, timedelta
from typing import Final

from contracts.bounds import freshness_future_seconds, freshness_past_seconds
from contracts.timestamps import format_timestamp, instant
from services.authority.admitted import Admitted, AuthenticationFailure, SignedFact
from services.authority.batch_facts import BatchFacts, mismatched_admission

_past: Final = timedelta(seconds=freshness_past_seconds)
_future: Final = timedelta(seconds=freshness_future_seconds)


class TrustDesk:
    """Judges the trust of one batch's documents at its one moment of acceptance."""

    def __init__(self, facts: BatchFacts, accepted_at: datetime) -> None:
        """`accepted_at` would be the acceptance time of everything in the batch."""
        self._facts = facts
        self._accepted = instant(format_timestamp(accepted_at))
        self._earliest = instant(format_timestamp(facts.now - _past))
        self._latest = instant(format_timestamp(facts.now + _future))
        self._key_faults: dict[tuple[str, str, str], str | None] = {}

    def distrust(self, admitted: Admitted) -> AuthenticationFailure | None:
        """Why a new Command may not be admitted now, or None."""
        for fact in admitted.facts:
            if mismatched_admission(self._facts, fact):
                return _failure("admission", f"{fact.kind} was first admitted under other terms", admitted)
            if (fault := self._key_fault(fact)) is not None:
                return _failure("key-resolution", fault, admitted)
        if not self._earliest <= instant(admitted.command.issued_at) <= self._latest:
            window = f"{freshness_past_seconds} s back and {freshness_future_seconds} s ahead"
            reason = f"issuedAt {admitted.command.issued_at} is not within {window} of {self._facts.now.isoformat()}"
            return _failure("freshness", reason, admitted)
        return None

    def _key_fault(self, fact: SignedFact) -> str | None:
        """Why a key may not vouch for a document accepted now, or None; judged once per key and Principal."""
        asked = (fact.key_id, fact.principal.type.value, fact.principal.id)
        if asked not in self._key_faults or fact.key_id not in self._facts.keys:
            self._key_faults[asked] = self._judge_key(*asked)
        return self._key_faults[asked]

    def _judge_key(self, key_id: str, principal_type: str, principal_id: str) -> str | None:
        """Intervals are half-open."""
        key = self._facts.keys.get(key_id)
        if key is None or (key.principal_type, key.principal_id) != (principal_type, principal_id):
            return f"key {key_id} is not registered for {principal_id}"
        ends = [instant(end) for end in (key.valid_until, key.revoked_at) if end is not None]
        if instant(key.valid_from) > self._accepted or any(end <= self._accepted for end in ends):
            return f"key {key_id} is not valid at the time of acceptance"
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
