"""Read a Worker's queue: what its runtime decides from. Each is called inside one snapshot (`store.read`)."""

from typing import Any

from msgspec import Struct

from projections.store import Transaction


class QueueGroup(Struct, frozen=True):
    """A Group of the Agent. What stands before a late member's start is None."""

    group_id: str
    mission_id: str | None
    title: str | None
    mission_state: str | None
    coordinator_id: str | None
    coordinator_epoch: int | None
    membership_id: str | None
    membership_epoch: int | None
    membership_role: str | None
    membership_state: str | None


class QueueOffer(Struct, frozen=True):
    """An offer that no Event has settled. `contract` is canonical JSON; expiry is for the authority to judge."""

    group_id: str
    work_item_id: str
    offer_id: str
    expires_at: str
    conversation_id: str | None
    contract: str


class QueueWorkItem(Struct, frozen=True):
    """A WorkItem that the Agent owns or was the last to own; no lease runs where its members are None.

    Times as signed. `contract`, `owner` (the Owner document) and `checkpoint` (the latest of any owner) are canonical
    JSON; `contract` and `owner` are None where a late member has not seen them.
    """

    group_id: str
    work_item_id: str
    state: str
    revision: int
    conversation_id: str | None
    contract: str | None
    owner_id: str
    owner: str | None
    ownership_epoch: int
    ownership_lease_id: str | None
    ownership_expires_at: str | None
    start_by: str | None
    execution_lease_id: str | None
    execution_session_epoch: int | None
    execution_expires_at: str | None
    checkpoint: str | None


class InboxEntry(Struct, frozen=True):
    """An Event that concerns the Agent."""

    group_id: str
    sequence: int
    event_id: str
    kind: str
    work_item_id: str | None
    occurred_at: str


def read_groups(transaction: Transaction) -> list[QueueGroup]:
    """The Agent's Groups."""
    return _read(transaction, "read_groups", QueueGroup)


def read_offers(transaction: Transaction) -> list[QueueOffer]:
    """The Agent's open offers."""
    return _read(transaction, "read_offers", QueueOffer)


def read_owned(transaction: Transaction, agent_id: str) -> list[QueueWorkItem]:
    """The WorkItems that the Agent owns or was the last to own."""
    return _read(transaction, "read_owned", QueueWorkItem, agent_id=agent_id)


def read_work_item_states(transaction: Transaction, group_id: str) -> dict[str, str]:
    """The state of every known WorkItem of a Group, whoever owns it (dependencies)."""
    return {
        str(work_item_id): str(state)
        for work_item_id, state in transaction.query("read_work_item_states", {"group_id": group_id})
    }


def read_inbox(transaction: Transaction, group_id: str, after: int, limit: int) -> list[InboxEntry]:
    """Up to `limit` entries of a Group's inbox above the sequence `after`, oldest first."""
    return _read(transaction, "read_inbox", InboxEntry, group_id=group_id, after=after, limit=limit)


def _read[R: Struct](transaction: Transaction, name: str, shape: type[R], **parameters: Any) -> list[R]:
    return [shape(*row) for row in transaction.query(name, parameters)]
