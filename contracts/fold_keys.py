"""Folds of the key registry's history: bindings never change, their ends only ever move earlier (TRU-2)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET, UnsetType, structs

from contracts.entities import Change, EntityKind, KeyRecord
from contracts.event import key_registered, key_retired, key_revoked
from contracts.fold import EventFacts, Fold, require
from contracts.group_entities import GroupState, changed
from contracts.payloads.keys import KeyRegistered, KeyRetired, KeyRevoked, KeyStanding
from contracts.timestamps import instant


def _registered(state: GroupState, event: EventFacts, payload: KeyRegistered) -> tuple[Change, ...]:
    require(state.key(payload.key.key_id) is None, f"key {payload.key.key_id} is bound already")
    return _stands(event, payload.key)


def _ended(state: GroupState, event: EventFacts, payload: KeyRetired | KeyRevoked) -> tuple[Change, ...]:
    """A key that an Agent Card or `weavehold init` bound is met here for the first time when it ends."""
    after, record = payload.key, state.key(payload.key.key_id)
    if record is not None:
        before = record.key
        unmoved = structs.replace(after, valid_until=before.valid_until, revoked_at=before.revoked_at)
        require(unmoved == before, f"key {after.key_id} is bound otherwise")
        require(_not_later(before.valid_until, after.valid_until), f"validUntil of {after.key_id} moved later")
        require(_not_later(before.revoked_at, after.revoked_at), f"revokedAt of {after.key_id} moved later")
        require(event.aggregate_revision == record.revision + 1, f"{after.key_id} is at revision {record.revision}")
    return _stands(event, after)


def _stands(event: EventFacts, key: KeyStanding) -> tuple[Change, ...]:
    return (changed(EntityKind.KEY, key.key_id, KeyRecord(key=key, revision=event.aggregate_revision)),)


def _not_later(before: str | UnsetType, after: str | UnsetType) -> bool:
    """Whether an end stayed or moved earlier; one that was stated is never taken back."""
    if before is UNSET:
        return True
    return after is not UNSET and instant(after) <= instant(before)


key_folds: Final[Mapping[str, Fold[Any]]] = MappingProxyType(
    {
        key_registered: Fold(KeyRegistered, _registered),
        key_retired: Fold(KeyRetired, _ended),
        key_revoked: Fold(KeyRevoked, _ended),
    }
)
