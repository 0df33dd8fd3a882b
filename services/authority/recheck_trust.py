"""Trust judged again under the locks: keys as they stand now, the admission log, freshness (RULE-06, TRU-4, TRU-6)."""

import hashlib
from collections.abc import Sequence

from contracts.admission import admission_stage
from contracts.documents.common import Actor
from contracts.timestamps import Instant
from contracts.verification import RegisteredKey, Stage
from services.authority.admission_book import AdmissionBook
from services.authority.admitted import Admitted, AuthenticationFailure, SignedFact
from services.authority.freshness import FreshnessWindow
from services.authority.key_book import KeyBook


class TrustDesk:
    """Judges the trust of one batch's documents at its one moment of acceptance."""

    def __init__(
        self, keys: KeyBook, admissions: AdmissionBook, *, moments: Sequence[Instant], window: FreshnessWindow
    ) -> None:
        """Keys must be valid at each of `moments`, the acceptance time among them; the books move on with the batch."""
        self._keys = keys
        self._admissions = admissions
        self.moments = moments
        self._window = window
        self._judged: dict[tuple[str, str, str], tuple[RegisteredKey, str | None]] = {}

    def distrust(self, admitted: Admitted) -> AuthenticationFailure | None:
        """Why a new Command may not be admitted now, or None."""
        for fact in admitted.facts:
            if (failure := self._distrusted(fact, is_command=fact is admitted.fact)) is not None:
                return _failure(*failure, admitted)
        if (fault := self._window.fault(admitted.command.issued_at)) is not None:
            return _failure("freshness", fault, admitted)
        return None

    def key_fault(self, key_id: str, principal: Actor) -> str | None:
        """Why a key may not vouch for a document accepted now, or None; judged once per state of a key."""
        known = self._keys.find(key_id)
        if known is None:
            return f"key {key_id} is not registered"
        asked = (key_id, principal.type.value, principal.id)
        judged = self._judged.get(asked)
        if judged is None or judged[0] is not known.key:
            judged = self._judged[asked] = (known.key, self._judge_key(known.key, principal))
        return judged[1]

    def _distrusted(self, fact: SignedFact, *, is_command: bool) -> tuple[str, str] | None:
        """Stage and reason of a refusal. What was admitted before is judged by its record: a key may end after that.

        The Command itself asks for something new, so its key must be valid now all the same.
        """
        known = self._keys.find(fact.key_id)
        if known is not None and self._admissions.holds(fact):
            if (fault := self._admissions.fault(fact, known.key)) is not None:
                return admission_stage, fault
            if not is_command:
                return None
        if (fault := self.key_fault(fact.key_id, fact.principal)) is not None:
            return Stage.KEY_RESOLUTION.value, fault
        return None

    def _judge_key(self, key: RegisteredKey, principal: Actor) -> str | None:
        if key.principal != principal:
            return f"key {key.key_id} is not registered for {principal.id}"
        if not all(key.covers(moment) for moment in self.moments):
            return f"key {key.key_id} is not valid at the time of acceptance"
        return None


def _failure(stage: str, reason: str, admitted: Admitted) -> AuthenticationFailure:
    return AuthenticationFailure(
        stage=stage,
        reason=reason,
        key_id=admitted.fact.key_id,
        actor_id=admitted.command.actor.id,
        action_id=admitted.command.action_id,
        document_sha256=hashlib.sha256(admitted.raw).digest(),
    )
