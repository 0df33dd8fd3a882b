"""The two state tables of a Group, as data: STM-M for Missions, STM-W for WorkItems.

They are keyed by the Event that records the transition, since some facts (a lapsed lease) have no Command; deciding
and folding read the same rows, so a transition outside them can neither be accepted nor be folded. `None` stands
for "does not exist yet". A row from a state to itself is a fact without a change of state.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from contracts.documents.mission import MissionState
from contracts.documents.work_item import WorkItemState
from contracts.event import history_resumed, late_result_recorded, lease_expired, lease_revoked

MissionRow = Mapping[MissionState | None, MissionState]
WorkItemRow = Mapping[WorkItemState | None, WorkItemState]


def _mission_stays(
    states: Iterable[MissionState], but: Mapping[MissionState, MissionState] = MappingProxyType({})
) -> MissionRow:
    return MappingProxyType({state: but.get(state, state) for state in states})


def _work_item_stays(
    states: Iterable[WorkItemState], but: Mapping[WorkItemState, WorkItemState] = MappingProxyType({})
) -> WorkItemRow:
    return MappingProxyType({state: but.get(state, state) for state in states})


_running: Final = (MissionState.ACTIVE,)
_unfinished_missions: Final = (MissionState.ACTIVE, MissionState.AWAITING_APPROVAL)

mission_transitions: Final[Mapping[str, MissionRow]] = MappingProxyType(
    {
        "mission.created": {None: MissionState.ACTIVE},
        "mission.coordinator.assigned": _mission_stays(_unfinished_missions),
        "mission.coordinator.renewed": _mission_stays(_unfinished_missions),
        "mission.submitted_for_approval": {MissionState.ACTIVE: MissionState.AWAITING_APPROVAL},
        "mission.changes_requested": {MissionState.AWAITING_APPROVAL: MissionState.ACTIVE},
        "mission.approved": {MissionState.AWAITING_APPROVAL: MissionState.APPROVED},
        "membership.changed": _mission_stays(_unfinished_missions),
        "message.posted": _mission_stays(_unfinished_missions),
        "work.authorized": _mission_stays(_running),
        "work.offer.created": _mission_stays(_running),
        "work.offer.accepted": _mission_stays(_running),
        "work.started": _mission_stays(_running),
        "work.progressed": _mission_stays(_running),
        "work.checkpointed": _mission_stays(_running),
        "artifact.published": _mission_stays(_running),
        "work.submitted": _mission_stays(_running),
        "work.result.accepted": _mission_stays(_running),
        history_resumed: _mission_stays(MissionState, {MissionState.AWAITING_APPROVAL: MissionState.ACTIVE}),
        lease_expired: _mission_stays(MissionState),
        lease_revoked: _mission_stays(MissionState),
        late_result_recorded: _mission_stays(MissionState),
    }
)
"""Event kind → state of the Mission before → after (STM-M)."""

_offerable: Final = (
    WorkItemState.OPEN,
    WorkItemState.OFFERED,
    WorkItemState.QUEUED,
    WorkItemState.ACTIVE,
    WorkItemState.BLOCKED,
    WorkItemState.FAILED,
)
_unfinished_work: Final = (
    WorkItemState.OPEN,
    WorkItemState.OFFERED,
    WorkItemState.QUEUED,
    WorkItemState.ACTIVE,
    WorkItemState.BLOCKED,
    WorkItemState.SUBMITTED,
)

work_item_transitions: Final[Mapping[str, WorkItemRow]] = MappingProxyType(
    {
        "work.authorized": {None: WorkItemState.OPEN},
        "work.offer.created": MappingProxyType(dict.fromkeys(_offerable, WorkItemState.OFFERED)),
        "work.offer.accepted": {WorkItemState.OFFERED: WorkItemState.QUEUED},
        "work.started": {WorkItemState.QUEUED: WorkItemState.ACTIVE},
        "work.progressed": {WorkItemState.ACTIVE: WorkItemState.ACTIVE},
        "work.checkpointed": {WorkItemState.ACTIVE: WorkItemState.QUEUED},
        lease_expired: {WorkItemState.ACTIVE: WorkItemState.QUEUED},
        lease_revoked: {WorkItemState.ACTIVE: WorkItemState.QUEUED},
        history_resumed: _work_item_stays(WorkItemState, {WorkItemState.ACTIVE: WorkItemState.QUEUED}),
        "artifact.published": _work_item_stays(_unfinished_work),
        "work.submitted": {WorkItemState.ACTIVE: WorkItemState.SUBMITTED},
        "work.result.accepted": {WorkItemState.SUBMITTED: WorkItemState.VERIFIED},
        late_result_recorded: _work_item_stays(WorkItemState),
    }
)
"""Event kind → state of its WorkItem before → after (STM-W). Ownership and leases are gates beside this table."""

unfinished_work_states: Final = frozenset(_unfinished_work)
"""States in which a WorkItem still holds up its Mission's approval."""
