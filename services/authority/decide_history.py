"""Decision about the history itself: a new incarnation after a restore or a failover (RULE-16, RULE-17).

An operator asks for it, or has decided beforehand for failovers: what the database holds is declared to be the history,
whatever anybody else has seen. Its Event stands in the registry's Group and opens the new incarnation for every shard.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from contracts.command import history_resume
from contracts.epochs import epoch_base, incarnation_name
from contracts.event import history_resumed
from contracts.fold_history import group_revision
from contracts.payloads.history import HistoryResume, HistoryResumed
from contracts.rejection import Code, Rejection
from contracts.service_principals import authority, operator
from services.authority.decide_keys import in_the_registry
from services.authority.decision import EventDraft
from services.authority.rule import Case, Rule

deciders: Final = frozenset({operator, authority})
"""Who may decide: the operator, and the authority itself for a failover that was decided beforehand."""


def _by_a_decider(case: Case[HistoryResume]) -> Rejection | None:
    if case.command.actor in deciders:
        return None
    return case.refuse(Code.AUTH_FORBIDDEN, f"{case.command.kind} is for {operator.id}, who answers for the restore")


def _follows_the_current(case: Case[HistoryResume]) -> Rejection | None:
    """Compare and set: of two operators who looked at the same state one opens an incarnation."""
    current, named = case.context.incarnation, case.payload.incarnation
    if named != current.name:
        message = f"incarnation {named} is not the current {current.name}; look again: weavehold incarnation show"
        return case.refuse(Code.REVISION_CONFLICT, message, details={"current": current.name})
    if named in case.payload.abandoned:
        return case.refuse(Code.INVALID_COMMAND, f"incarnation {named} is the current one, which is not abandoned")
    return None


def _resumed(case: Case[HistoryResume]) -> tuple[EventDraft, ...]:
    current = case.context.incarnation
    base = epoch_base(case.context.now, current.epoch_base, case.payload.abandoned)
    event = HistoryResumed(
        incarnation=incarnation_name(base, case.context.new_id().removeprefix("urn:uuid:").replace("-", "")),
        parent=current.name,
        epoch_base=base,
        reason=case.payload.reason,
    )
    return (case.draft(event, group_revision),)


history_rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        history_resume: Rule[HistoryResume](
            event=history_resumed,
            aggregate=lambda _: group_revision,
            events=_resumed,
            shape=(in_the_registry,),
            entry=(),
            policy=(_by_a_decider,),
            state=(_follows_the_current,),
        )
    }
)
