"""What a Worker may do now, read from its work queue: offers to judge and owned WorkItems to start."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from contracts.documents.checkpoint import Checkpoint
from contracts.documents.work_contract import WorkContract
from contracts.identifiers import OwnershipEpoch, SessionEpoch
from projections.store import Transaction
from projections.work_queue.read_queue import (
    QueueOffer,
    QueueWorkItem,
    read_groups,
    read_offers,
    read_owned,
    read_work_item_states,
)
from services.worker.assigned_work import AssignedWork

_startable_states: Final = frozenset({"queued", "active"})
_active_mission: Final = "active"
_verified: Final = "verified"


class Queue(Struct, frozen=True, kw_only=True):
    """One consistent look at the queue. `sequences` are the Cursors of the Groups."""

    offers: tuple[QueueOffer, ...]
    startable: tuple[AssignedWork, ...]
    unfinished: int
    sequences: Mapping[str, int]


def read_queue(transaction: Transaction, agent_id: str, session: SessionEpoch) -> Queue:
    """Offers in active Missions, and what this Agent owns and may start as far as Events say."""
    missions = {group.group_id: group for group in read_groups(transaction)}
    active = {name for name, group in missions.items() if group.mission_state == _active_mission}
    owned = read_owned(transaction, agent_id)
    states: dict[str, Mapping[str, str]] = {}
    startable: list[AssignedWork] = []
    for item in owned:
        mission_id = missions[item.group_id].mission_id if item.group_id in active else None
        if item.state not in _startable_states or item.contract is None or mission_id is None:
            continue
        work = _assigned(item, mission_id, msgspec.json.decode(item.contract, type=WorkContract), session)
        if item.group_id not in states:
            states[item.group_id] = read_work_item_states(transaction, item.group_id)
        if _dependencies_verified(work.contract.dependency_work_item_ids, states[item.group_id]):
            startable.append(work)
    return Queue(
        offers=tuple(offer for offer in read_offers(transaction) if offer.group_id in active),
        startable=tuple(startable),
        unfinished=sum(item.state in _startable_states for item in owned),
        sequences={cursor.group_id: cursor.sequence for cursor in transaction.cursors()},
    )


def _dependencies_verified(dependencies: Sequence[str], states: Mapping[str, str]) -> bool:
    """Whether all dependencies are verified; one that a late member cannot see is the authority's to judge."""
    return all(states.get(name, _verified) == _verified for name in dependencies)


def _assigned(item: QueueWorkItem, mission_id: str, contract: WorkContract, session: SessionEpoch) -> AssignedWork:
    """A lease of this session is still running; one of an earlier session ends before anything new may start."""
    running = item.state == "active" and item.execution_session_epoch == session
    return AssignedWork(
        group_id=item.group_id,
        mission_id=mission_id,
        work_item_id=item.work_item_id,
        revision=item.revision,
        contract=contract,
        ownership_epoch=OwnershipEpoch(item.ownership_epoch),
        ownership_lease_id=item.ownership_lease_id,
        checkpoint=None if item.checkpoint is None else msgspec.json.decode(item.checkpoint, type=Checkpoint),
        running_lease_id=item.execution_lease_id if running else None,
    )
