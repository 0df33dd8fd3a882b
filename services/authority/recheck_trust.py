"""Trust judged again under the locks: keys as they stand now, the admission log, freshness (RULE-06, TRU-4, TRU-6)."""

from datetime import datetime

from contracts.documents.common import Actor
from contracts.timestamps import format_timestamp, instant
from contracts.verification import RegisteredKey
from services.authority.admitted import Admitted, AuthenticationFailure
from services.authority.batch_facts import BatchFacts, mismatched_admission
from services.authority.freshness import Freshness
from services.authority.key_book import KeyBook


class TrustDesk:
    """Judges the trust of one batch's documents at its one moment of acceptance."""

    def __init__(self, facts: BatchFacts, book: KeyBook, accepted_at: datetime, freshness: Freshness) -> None:
        """`accepted_at` would be the acceptance time of everything in the batch; `book` moves on with the batch."""
        self._facts = facts
        self._book = book
        self._accepted = instant(format_timestamp(accepted_at))
        self._window = freshness.around(facts.now)
        self._judged: dict[tuple[str, str, str], tuple[RegisteredKey, str | None]] = {}

    def distrust(self, admitted: Admitted) -> AuthenticationFailure | None:
        """Why a new Command may not be admitted now, or None."""
        for fact in admitted.facts:
            if mismatched_admission(self._facts, fact):
                return _failure("admission", f"{fact.kind} was first admitted under other terms", admitted)
            if (fault := self.key_fault(fact.key_id, fact.principal)) is not None:
                return _failure("key-resolution", fault, admitted)
        if (fault := self._window.fault(admitted.command.issued_at)) is not None:
            return _failure("freshness", fault, admitted)
        return None

    def key_fault(self, key_id: str, principal: Actor) -> str | None:
        """Why a key may not vouch for a document accepted now, or None; judged once per state of a key."""
        known = self._book.find(key_id)
        if known is None:
            return f"key {key_id} is not registered"
        asked = (key_id, principal.type.value, principal.id)
        judged = self._judged.get(asked)
        if judged is None or judged[0] is not known.key:
            judged = self._judged[asked] = (known.key, self._judge_key(known.key, principal))
        return judged[1]

    def _judge_key(self, key: RegisteredKey, principal: Actor) -> str | None:
        if key.principal != principal:
            return f"key {key.key_id} is not registered for {principal.id}"
        if not key.covers(self._accepted):
            return f"key {key.key_id} is not valid at the time of acceptance"
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
