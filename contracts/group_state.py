"""The fold of a Group's Events: what the authority stores and what `weavehold verify` recomputes from the log.

`evolve` is pure. Every state change has an Event, so the fold of a Group's history equals its stored entities,
digest for digest.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import ValidationError, convert

from contracts.entities import (
    Change,
    Entity,
    EntityKey,
    EntityKind,
    combined_digest,
    decode_entity,
    entity_bytes,
    entity_digest,
    state_digest,
)
from contracts.fold import EventFacts, Fold, FoldFault, Impossible, facts_of
from contracts.fold_history import history_folds
from contracts.fold_keys import key_folds
from contracts.fold_membership import membership_folds
from contracts.fold_mission import mission_folds
from contracts.fold_work import work_folds
from contracts.group_entities import GroupState

__all__ = [
    "Change",
    "Entity",
    "EntityKey",
    "EntityKind",
    "EventFacts",
    "FoldFault",
    "GroupState",
    "combined_digest",
    "decode_entity",
    "entity_bytes",
    "entity_digest",
    "evolve",
    "facts_of",
    "folded_kinds",
    "state_digest",
]

_folds: Final[Mapping[str, Fold[Any]]] = MappingProxyType(
    {**mission_folds, **membership_folds, **work_folds, **key_folds, **history_folds}
)
folded_kinds: Final = frozenset(_folds)
"""Event kinds that change entities here; all others fold to nothing (PRJ-5)."""


def evolve(state: GroupState, event: EventFacts) -> tuple[Change, ...]:
    """What an Event changes in the state before it, as whole new entities.

    An unknown kind changes nothing. Raises FoldFault, naming Group and sequence, when a known kind carries a payload
    of another shape or cannot have happened to this state. The state itself is left as it is: see `GroupState.apply`.
    """
    fold = _folds.get(event.kind)
    if fold is None:
        return ()
    try:
        return fold.apply(state, event, convert(event.payload, fold.payload))
    except (Impossible, LookupError, ValidationError, ValueError) as fault:
        raise FoldFault(event, str(fault)) from fault
