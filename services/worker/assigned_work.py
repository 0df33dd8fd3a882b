"""A WorkItem as its owner needs it to start: taken from the work queue, which is made of Events alone (MWP-WRK-008)."""

from msgspec import Struct

from contracts.documents.checkpoint import Checkpoint
from contracts.documents.common import CapabilityRef
from contracts.documents.work_contract import WorkContract
from contracts.identifiers import OwnershipEpoch


class AssignedWork(Struct, frozen=True, kw_only=True):
    """A WorkItem that this Agent owns, at one revision. `checkpoint` is the latest one of any owner.

    `ownership_lease_id` names the ownership from its acceptance on; its epoch may be lifted meanwhile (RULE-17).

    `running_lease_id` names an Execution Lease that this very session holds already: its start was accepted, but the
    run that asked for it ended before it could tell.
    """

    group_id: str
    mission_id: str
    work_item_id: str
    revision: int
    contract: WorkContract
    ownership_epoch: OwnershipEpoch
    ownership_lease_id: str | None
    checkpoint: Checkpoint | None
    running_lease_id: str | None


class Acceptance(Struct, frozen=True):
    """What the Agent accepted the WorkItem under: its Agent Card's version and the pinned capabilities."""

    agent_card_version: int
    capability_pins: tuple[CapabilityRef, ...]
