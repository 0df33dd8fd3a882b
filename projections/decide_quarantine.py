"""Put a decision about a quarantined Group on record and let the Group go on, inside one transaction of its store.

Whoever decides is no part of the consumer's process: that one finds the Group let go on at its next look, or at its
next start. A crash leaves nothing, or the decision with its effect.
"""

from typing import Final

from msgspec import Struct, field

from projections.quarantine import DecisionRefused, check_decision
from projections.store import Decision, Quarantined, Transaction, Verb

groups_at_once_max: Final = 1_000
"""Groups that one transaction decides on."""


class Asked(Struct, frozen=True):
    """What somebody asks for: by whom, why, and when (a timestamp)."""

    verb: Verb
    who: str
    why: str
    at: str


class Decided(Struct):
    """What became of it: the Groups as they were found, why others were left, and how many were left unnamed."""

    done: list[Quarantined] = field(default_factory=list)
    refused: list[tuple[Quarantined, str]] = field(default_factory=list)
    left: int = 0


def decide_group(transaction: Transaction, asked: Asked, group_id: str, event: str | None = None) -> Quarantined:
    """Decide on one Group; returns what was found. `event` is the Event meant, by ID or sequence: no other is touched.

    Raises DecisionRefused.
    """
    found = transaction.quarantined_of(group_id)
    if found is None:
        raise DecisionRefused(f"{group_id} is not quarantined; `weavehold quarantine list` shows which Groups are")
    stop = found.stop
    if event not in (None, stop.event_id, str(stop.sequence)):
        raise DecisionRefused(
            f"{group_id} stands before {stop.event_id} at sequence {stop.sequence}, not before {event}; look at it "
            "with `weavehold quarantine show`"
        )
    _decide(transaction, asked, found)
    return found


def decide_groups(transaction: Transaction, asked: Asked, limit: int) -> Decided:
    """Decide on up to `limit` Groups that stand, past those that must not be decided on now.

    Up to `limit` of these are named; they are left, whether named or not.
    """
    standing = [each for each in transaction.quarantined() if each.tried_at is None]
    decided = Decided()
    for found in standing:
        if len(decided.done) == limit:
            break
        try:
            _decide(transaction, asked, found)
        except DecisionRefused as refusal:
            if len(decided.refused) < limit:
                decided.refused.append((found, str(refusal)))
        else:
            decided.done.append(found)
    decided.left = len(standing) - len(decided.done) - len(decided.refused)
    return decided


def _decide(transaction: Transaction, asked: Asked, found: Quarantined) -> None:
    """Raises DecisionRefused, also when the Group is not as it was found any more."""
    stop = found.stop
    skips = transaction.count_skips() if asked.verb is Verb.SKIP else 0
    check_decision(asked.verb, found, transaction.decisions_of(stop.group_id), skips, asked.at)
    attempts = 0 if asked.verb is Verb.RELEASE else found.attempts
    if not transaction.try_again(found.held, asked.at, attempts):
        raise DecisionRefused(f"{stop.group_id} changed at this moment; look at it again, then decide")
    transaction.decide(
        Decision(
            verb=asked.verb,
            group_id=stop.group_id,
            sequence=stop.sequence,
            event_id=stop.event_id,
            chain_hash=stop.chain_hash,
            kind=stop.kind,
            version=found.version,
            attempts=found.attempts,
            who=asked.who,
            why=asked.why,
            at=asked.at,
        )
    )
