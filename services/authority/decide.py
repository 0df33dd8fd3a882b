"""Deciding one Command: pure, on the state of its Group and a few facts from outside (design: decide → Events)."""

from contracts.command import Command
from contracts.document_kinds import DocumentKind
from contracts.group_state import GroupState
from services.authority.decision import Decision, DecisionContext, EventDraft


def decide(state: GroupState, command: Command, context: DecisionContext) -> Decision:
    """The Events that a fresh, verified Command causes, a late result to keep, or the first refusal (RULE-01)."""
    raise NotImplementedError


def overdue(state: GroupState, command: Command, context: DecisionContext) -> tuple[EventDraft, ...]:
    """Facts found on the way that commit whatever becomes of the Command (ACC-1, RULE-07, RULE-10)."""
    raise NotImplementedError


def agents_consulted(command: Command) -> frozenset[str]:
    """The Agents whose rows this decision may read: acting Agent, Coordinator, candidates, members."""
    raise NotImplementedError


def identifiers_claimed(command: Command) -> tuple[tuple[str, str], ...]:
    """New globally unique identifiers with the kind of what they name, none when the payload has another shape."""
    raise NotImplementedError


def nested_documents(command: Command) -> tuple[tuple[DocumentKind, dict[str, object]], ...]:
    """Signed documents inside the payload, as received, that admission must verify too."""
    raise NotImplementedError


def home_group(command: Command) -> str:
    """The Group that decides this Command; "" for the Organization."""
    raise NotImplementedError
