"""Folds of Memberships and Messages."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from contracts.entities import Change, EntityKind, MessageRecord
from contracts.fold import EventFacts, Fold, mission_after, require, require_revision
from contracts.fold_mission import membership_change
from contracts.group_entities import GroupState, changed
from contracts.payloads.membership import MembershipChanged
from contracts.payloads.message import MessagePosted


def _changed(state: GroupState, event: EventFacts, payload: MembershipChanged) -> tuple[Change, ...]:
    mission_after(state, event.kind)
    membership = payload.membership
    before = state.membership(membership.member.id)
    epoch = 0 if before is None else before.membership_epoch
    require(membership.membership_epoch > epoch, f"Membership Epoch {membership.membership_epoch} is not above {epoch}")
    require_revision(event, membership.membership_epoch)
    return (membership_change(membership),)


def _posted(state: GroupState, event: EventFacts, payload: MessagePosted) -> tuple[Change, ...]:
    mission_after(state, event.kind)
    message = payload.message
    require(state.conversation(message.conversation_id), f"Conversation {message.conversation_id} is unknown")
    record = MessageRecord(message=message)
    require_revision(event, record.revision)
    return (changed(EntityKind.MESSAGE, message.message_id, record),)


membership_folds: Final[Mapping[str, Fold[Any]]] = MappingProxyType(
    {
        "membership.changed": Fold(MembershipChanged, _changed),
        "message.posted": Fold(MessagePosted, _posted),
    }
)
