"""How one Command kind is judged: its checks, sorted into the stages of RULE-01, and the Events that it causes.

`decide` runs the stages in one order for all kinds; a rule only says which checks belong to which stage.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, UnsetType, to_builtins

from contracts.command import Command
from contracts.document_kinds import DocumentKind
from contracts.documents.common import Document
from contracts.entities import WorkItemRecord
from contracts.event import Cause, CauseType
from contracts.group_state import GroupState
from contracts.rejection import Code, Rejection, reject
from services.authority.decision import DecisionContext, EventDraft, LateResult


class Case[P](Struct, frozen=True):
    """One Command before the decision, with what every check needs at hand.

    `addressed` is the WorkItem that the payload names, None when there is none.
    """

    state: GroupState
    command: Command
    context: DecisionContext
    payload: P
    rule: "Rule[Any]"
    addressed: WorkItemRecord | None

    @property
    def record(self) -> WorkItemRecord:
        """The addressed WorkItem. Raises LookupError when it is unknown, which `work_item_known` refuses first."""
        if self.addressed is None:
            raise LookupError(f"{self.command.kind} addresses no known WorkItem")
        return self.addressed

    @property
    def actor_id(self) -> str:
        """Identifier of the acting Principal."""
        return self.command.actor.id

    def refuse(self, code: Code, message: str, **facts: Any) -> Rejection:
        """A Rejection that names the Command and its Group."""
        command = self.command
        return reject(code, message, related_action_id=command.action_id, group_id=command.group_id, **facts)

    def draft(self, payload: Document, revision: int, kind: str | None = None, **places: str | UnsetType) -> EventDraft:
        """The Event of this rule (or another `kind`), caused by the Command."""
        return EventDraft(
            kind=kind or self.rule.event,
            payload=to_builtins(payload),
            aggregate_revision=revision,
            actor=self.command.actor,
            cause=Cause(type=CauseType.COMMAND, id=self.command.action_id),
            **places,
        )


Check = Callable[[Case[Any]], Rejection | LateResult | None]
"""One question about a Command; None means that nothing stands against it."""


def _no_names(_: Any) -> Iterable[str]:
    return ()


def _no_keys(_: Any) -> Iterable[tuple[str, bytes | None]]:
    return ()


def _no_claims(_: Any) -> tuple[tuple[str, str], ...]:
    return ()


class Rule[P](Struct, frozen=True, kw_only=True):
    """One Command kind.

    `event` is the kind of its Event, `aggregate` the present revision of what it changes (0 for something new),
    `work_item` the identifier of the WorkItem that the payload addresses, `keys` the registered keys that it asks for
    (ID and, to bind, the 32 raw bytes); `changes_keys` says that it binds or ends them. The check tuples stand in the
    order in which they run; see `decide` for what runs between them.
    """

    event: str
    aggregate: Callable[[Case[P]], int]
    events: Callable[[Case[P]], tuple[EventDraft, ...]]
    work_item: Callable[[P], str] | None = None
    agents: Callable[[P], Iterable[str]] = _no_names
    keys: Callable[[P], Iterable[tuple[str, bytes | None]]] = _no_keys
    changes_keys: bool = False
    claims: Callable[[P], tuple[tuple[str, str], ...]] = _no_claims
    nested: tuple[tuple[DocumentKind, str], ...] = ()
    shape: tuple[Check, ...] = ()
    entry: tuple[Check, ...]
    fence: tuple[Check, ...] = ()
    policy: tuple[Check, ...] = ()
    state: tuple[Check, ...] = ()
    expiry: tuple[Check, ...] = ()
    approval: tuple[Check, ...] = ()
    budget: tuple[Check, ...] = ()
