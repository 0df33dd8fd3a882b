"""The Event with which a Group goes on in a new incarnation (RULE-17)."""

from msgspec import to_builtins

from contracts.event import Cause, CauseType, history_resumed
from contracts.fold_history import group_revision
from contracts.payloads.history import HistoryResumed
from contracts.service_principals import authority
from services.authority.decision import EventDraft
from services.authority.incarnation import Incarnation


def resumption(current: Incarnation, parent: str) -> EventDraft:
    """The draft for a Group whose last Event stands in incarnation `parent`. Raises ValueError for the first one."""
    if current.event_id is None:
        raise ValueError(f"incarnation {current.name} follows none")
    event = HistoryResumed(
        incarnation=current.name, parent=parent, epoch_base=current.epoch_base, reason=current.reason
    )
    return EventDraft(
        kind=history_resumed,
        payload=to_builtins(event),
        aggregate_revision=group_revision,
        actor=authority,
        cause=Cause(type=CauseType.EVENT, id=current.event_id),
    )
