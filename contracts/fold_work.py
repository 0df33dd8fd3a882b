"""Folds of the WorkItem family, with the Artifacts that belong to WorkItems."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from contracts.documents.lease import Lease, LeaseState
from contracts.documents.work_item import Offer, OfferStatus, Owner
from contracts.entities import (
    ArtifactRecord,
    Change,
    ConversationRecord,
    EntityKind,
    PastOwner,
    WorkItemRecord,
    past_owners_max,
)
from contracts.event import late_result_recorded, lease_expired, lease_revoked
from contracts.fold import (
    EventFacts,
    Fold,
    mission_after,
    require,
    require_closed,
    require_revision,
    work_item_after,
)
from contracts.fold_mission import bump_mission, membership_change
from contracts.group_entities import GroupState, changed
from contracts.payloads import work as payloads
from contracts.payloads.artifact import ArtifactPublished
from contracts.timestamps import instant
from contracts.transitions import work_item_transitions


def _record(state: GroupState, work_item_id: str) -> WorkItemRecord:
    record = state.work_item(work_item_id)
    if record is None:
        raise LookupError(f"WorkItem {work_item_id} is unknown")
    return record


def _moved(state: GroupState, event: EventFacts, record: WorkItemRecord, **item_members: Any) -> WorkItemRecord:
    """The WorkItem after this Event: next state by STM-W, revision + 1, and the given members of its document."""
    mission_after(state, event.kind)
    item = replace(
        record.item,
        state=work_item_after(record, event.kind),
        revision=record.item.revision + 1,
        updated_at=event.occurred_at,
        **item_members,
    )
    require_revision(event, item.revision)
    return replace(record, item=item)


def _change(record: WorkItemRecord) -> Change:
    return changed(EntityKind.WORK_ITEM, record.item.work_item_id, record)


def _owner(record: WorkItemRecord) -> Owner:
    if record.item.owner is UNSET:
        raise LookupError(f"WorkItem {record.item.work_item_id} has no owner")
    return record.item.owner


def _require_epoch(record: WorkItemRecord, epoch: int) -> None:
    current = _owner(record).ownership_epoch
    require(current == epoch, f"Ownership Epoch is {epoch}; the current one is {current}")


def _authorized(state: GroupState, event: EventFacts, payload: payloads.WorkAuthorized) -> tuple[Change, ...]:
    mission_after(state, event.kind)
    item, conversation = payload.work_item, payload.conversation
    require(state.work_item(item.work_item_id) is None, f"WorkItem {item.work_item_id} exists already")
    require(item.state is work_item_transitions[event.kind][None], f"a new WorkItem is not {item.state.value}")
    require_revision(event, item.revision)
    return (
        _change(WorkItemRecord(item=item)),
        changed(EntityKind.CONVERSATION, conversation.conversation_id, ConversationRecord(conversation=conversation)),
        bump_mission(state),
    )


def _offered(state: GroupState, event: EventFacts, payload: payloads.WorkOfferCreated) -> tuple[Change, ...]:
    record = _record(state, payload.work_item_id)
    require(payload.contract == record.item.contract, "the offered contract is not the WorkItem's")
    fenced = _fence(record, event.occurred_at)
    moved = _moved(
        state,
        event,
        fenced,
        offers=payload.offers,
        selection_basis=payload.selection_basis,
        owner=UNSET,
        submission=UNSET,
    )
    return (_change(moved),)


def _fence(record: WorkItemRecord, now: str) -> WorkItemRecord:
    """A new offer ends whatever ownership had lapsed (MWP-WRK-019)."""
    owner = record.item.owner
    if owner is UNSET:
        return record
    past = PastOwner(agent_id=owner.agent_id, ownership_epoch=owner.ownership_epoch)
    return replace(
        record,
        past_owners=(*record.past_owners, past)[-past_owners_max:],
        ownership_lease=_end(record.ownership_lease, LeaseState.EXPIRED, now, "not started or renewed in time"),
        execution_lease=_end(record.execution_lease, LeaseState.REVOKED, now, "work offered anew"),
    )


def _end(lease: Lease | UnsetType, state: LeaseState, now: str, reason: str) -> Lease | UnsetType:
    if lease is UNSET or lease.state is not LeaseState.ACTIVE:
        return lease
    return replace(lease, state=state, closed_at=now, closure_reason=reason)


def _accepted(state: GroupState, event: EventFacts, payload: payloads.WorkOfferAccepted) -> tuple[Change, ...]:
    record = _record(state, payload.work_item_id)
    owner, lease = payload.owner, payload.lease
    require(
        owner.ownership_epoch > record.ownership_epoch,
        f"Ownership Epoch {owner.ownership_epoch} is not above {record.ownership_epoch}",
    )
    require(
        (owner.agent_id, owner.ownership_lease_id) == (lease.holder_agent_id, lease.lease_id),
        "owner and ownership lease differ",
    )
    offers = tuple(_settled(offer, owner.agent_id, event.occurred_at) for offer in record.item.offers or ())
    moved = replace(
        _moved(state, event, record, owner=owner, offers=offers),
        ownership_epoch=owner.ownership_epoch,
        ownership_lease=lease,
        execution_lease=UNSET,
    )
    if payload.membership is UNSET:
        return (_change(moved),)
    return (_change(moved), membership_change(payload.membership))


def _settled(offer: Offer, winner: str, now: str) -> Offer:
    """What an acceptance makes of one offer of the same WorkItem."""
    if offer.status is not OfferStatus.PENDING:
        return offer
    if offer.agent_id == winner:
        return replace(offer, status=OfferStatus.ACCEPTED)
    expired = instant(offer.expires_at) <= instant(now)
    return replace(offer, status=OfferStatus.EXPIRED if expired else OfferStatus.LOST_RACE)


def _started(state: GroupState, event: EventFacts, payload: payloads.WorkStarted) -> tuple[Change, ...]:
    record = _record(state, payload.work_item_id)
    _require_epoch(record, payload.ownership_epoch)
    return (_change(_leased(_moved(state, event, record), payload.execution_lease, payload.ownership_lease)),)


def _progressed(state: GroupState, event: EventFacts, payload: payloads.WorkProgressed) -> tuple[Change, ...]:
    record = _record(state, payload.work_item_id)
    _require_epoch(record, payload.ownership_epoch)
    require_closed(payload.execution_lease, record.execution_lease, (LeaseState.ACTIVE,))
    return (_change(_leased(_moved(state, event, record), payload.execution_lease, payload.ownership_lease)),)


def _leased(record: WorkItemRecord, execution: Lease, ownership: Lease | UnsetType) -> WorkItemRecord:
    return replace(
        record,
        execution_lease=execution,
        ownership_lease=record.ownership_lease if ownership is UNSET else ownership,
    )


def _checkpointed(state: GroupState, event: EventFacts, payload: payloads.WorkCheckpointed) -> tuple[Change, ...]:
    record = _record(state, payload.work_item_id)
    require_closed(payload.execution_lease, record.execution_lease, (LeaseState.RELEASED,))
    moved = _leased(_moved(state, event, record), payload.execution_lease, payload.ownership_lease)
    return (_change(replace(moved, latest_checkpoint=payload.checkpoint)),)


def _lease_expired(
    state: GroupState, event: EventFacts, payload: payloads.WorkExecutionLeaseExpired
) -> tuple[Change, ...]:
    record = _record(state, payload.work_item_id)
    require_closed(payload.execution_lease, record.execution_lease, (LeaseState.EXPIRED,))
    return (_change(replace(_moved(state, event, record), execution_lease=payload.execution_lease)),)


def _lease_revoked(
    state: GroupState, event: EventFacts, payload: payloads.WorkExecutionLeaseRevoked
) -> tuple[Change, ...]:
    record = _record(state, payload.work_item_id)
    require_closed(payload.execution_lease, record.execution_lease, (LeaseState.REVOKED,))
    return (_change(replace(_moved(state, event, record), execution_lease=payload.execution_lease)),)


def _published(state: GroupState, event: EventFacts, payload: ArtifactPublished) -> tuple[Change, ...]:
    artifact = payload.artifact
    record = _record(state, artifact.work_item_id)
    require(state.artifact(artifact.artifact_id) is None, f"Artifact {artifact.artifact_id} exists already")
    moved = replace(_moved(state, event, record), artifact_ids=(*record.artifact_ids, artifact.artifact_id))
    return (changed(EntityKind.ARTIFACT, artifact.artifact_id, ArtifactRecord(artifact=artifact)), _change(moved))


def _submitted(state: GroupState, event: EventFacts, payload: payloads.WorkSubmitted) -> tuple[Change, ...]:
    record = _record(state, payload.work_item_id)
    require_closed(payload.execution_lease, record.execution_lease, (LeaseState.RELEASED,))
    moved = _moved(state, event, record, submission=payload.submission)
    return (_change(replace(moved, execution_lease=payload.execution_lease)),)


def _result_accepted(state: GroupState, event: EventFacts, payload: payloads.WorkResultAccepted) -> tuple[Change, ...]:
    record = _record(state, payload.work_item_id)
    require_closed(payload.ownership_lease, record.ownership_lease, (LeaseState.RELEASED,))
    moved = replace(
        _moved(state, event, record),
        ownership_lease=payload.ownership_lease,
        result_evidence_ids=tuple(evidence.evidence_id for evidence in payload.evidence),
    )
    return (_change(moved), bump_mission(state))


def _late_result(state: GroupState, event: EventFacts, payload: payloads.LateResultRecorded) -> tuple[Change, ...]:
    """Kept in the log as Evidence; completes nothing (MWP-WRK-019)."""
    require_revision(event, _record(state, payload.work_item_id).item.revision)
    return ()


work_folds: Final[Mapping[str, Fold[Any]]] = MappingProxyType(
    {
        "work.authorized": Fold(payloads.WorkAuthorized, _authorized),
        "work.offer.created": Fold(payloads.WorkOfferCreated, _offered),
        "work.offer.accepted": Fold(payloads.WorkOfferAccepted, _accepted),
        "work.started": Fold(payloads.WorkStarted, _started),
        "work.progressed": Fold(payloads.WorkProgressed, _progressed),
        "work.checkpointed": Fold(payloads.WorkCheckpointed, _checkpointed),
        lease_expired: Fold(payloads.WorkExecutionLeaseExpired, _lease_expired),
        lease_revoked: Fold(payloads.WorkExecutionLeaseRevoked, _lease_revoked),
        "artifact.published": Fold(ArtifactPublished, _published),
        "work.submitted": Fold(payloads.WorkSubmitted, _submitted),
        "work.result.accepted": Fold(payloads.WorkResultAccepted, _result_accepted),
        late_result_recorded: Fold(payloads.LateResultRecorded, _late_result),
    }
)
