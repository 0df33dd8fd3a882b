"""What Commands change, at which revision it stands, and where Events about it belong."""

from typing import Any

from contracts.documents.work_item import WorkItem
from services.authority.rule import Case


def mission_revision(case: Case[Any]) -> int:
    """The Mission is what changes; 0 for a new one."""
    return case.state.mission.revision if case.state.exists else 0


def work_item_revision(case: Case[Any]) -> int:
    """The WorkItem is what changes; 0 for a new one."""
    return 0 if case.addressed is None else case.addressed.item.revision


def work_item_named(payload: Any) -> str:
    """The WorkItem that most payloads of its family name."""
    work_item_id: str = payload.work_item_id
    return work_item_id


def work_places(item: WorkItem) -> dict[str, str]:
    """Conversation and WorkItem of an Event about a WorkItem."""
    return {"conversation_id": item.conversation_id, "work_item_id": item.work_item_id}
