"""Deciding one Command: pure, on the state of its Group and a few facts from outside.

The order of checks is the one of RULE-01 for every kind; the first refusal stands. Expected refusals are values.
"""

from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET, to_builtins

from contracts.command import Command
from contracts.document_kinds import DocumentKind
from contracts.documents.common import ActorType, Document
from contracts.documents.lease import Lease, LeaseState
from contracts.entities import WorkItemRecord
from contracts.event import Cause, CauseType, lease_expired, lease_revoked
from contracts.group_state import GroupState
from contracts.identifiers import SessionEpoch
from contracts.payloads.registry import command_payloads, read_command_payload
from contracts.payloads.work import WorkExecutionLeaseExpired, WorkExecutionLeaseRevoked
from contracts.rejection import Rejection
from contracts.service_principals import authority, registrars
from services.authority.aggregates import work_places
from services.authority.decide_approval import approval_rules
from services.authority.decide_artifact import artifact_rules
from services.authority.decide_history import history_rules
from services.authority.decide_keys import key_rules
from services.authority.decide_membership import membership_rules
from services.authority.decide_message import message_rules
from services.authority.decide_mission import mission_rules
from services.authority.decide_offer import offer_rules
from services.authority.decide_organization import organization_rules
from services.authority.decide_work import work_rules
from services.authority.decision import AgentFacts, Decision, DecisionContext, EventDraft
from services.authority.gates import extensions_known, identifiers_free, is_past, revision_expected, transition_exists
from services.authority.leases import closed
from services.authority.rule import Case, Check, Rule

rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        **organization_rules,
        **key_rules,
        **history_rules,
        **mission_rules,
        **approval_rules,
        **membership_rules,
        **message_rules,
        **offer_rules,
        **work_rules,
        **artifact_rules,
    }
)
"""Every Command kind that is decided here."""


remembered_payloads_max: Final = 512
"""Commands whose typed payload is kept: more than one batch, for each Command is asked about several times."""

_payloads: Final[OrderedDict[int, tuple[Command, Document | Rejection]]] = OrderedDict()


def _payload(command: Command) -> Document | Rejection:
    """The typed payload of a Command, read once. The kept Command keeps its identity from being used again."""
    known = _payloads.get(id(command))
    if known is not None:
        return known[1]
    payload = read_command_payload(command)
    while len(_payloads) >= remembered_payloads_max:
        _payloads.popitem(last=False)
    _payloads[id(command)] = (command, payload)
    return payload


def _stages(rule: Rule[Any]) -> tuple[Check, ...]:
    """RULE-01 after freshness and payload shape, in order."""
    return (
        *rule.shape,
        extensions_known,
        *rule.entry,
        *rule.fence,
        *rule.policy,
        revision_expected,
        transition_exists,
        identifiers_free,
        *rule.state,
        *rule.expiry,
        *rule.approval,
        *rule.budget,
    )


_checks: Final[Mapping[str, tuple[Check, ...]]] = MappingProxyType(
    {kind: _stages(rule) for kind, rule in rules.items()}
)


def decide(state: GroupState, command: Command, context: DecisionContext) -> Decision:
    """The Events that a fresh, verified Command causes, a late result to keep, or the first refusal (RULE-01).

    `state` is the Group that the Command names, after the Events of `overdue`; the empty state of Group "" for an
    Organization-scoped Command. Nothing is changed.
    """
    payload = _payload(command)
    if isinstance(payload, Rejection):
        return payload
    rule = rules[command.kind]
    addressed = state.work_item(rule.work_item(payload)) if rule.work_item else None
    case = Case(state, command, context, payload, rule, addressed)
    for check in _checks[command.kind]:
        refusal = check(case)
        if refusal is not None:
            return refusal
    return rule.events(case)


# --- facts found on the way --------------------------------------------------------------------------------------


def overdue(state: GroupState, command: Command, context: DecisionContext) -> tuple[EventDraft, ...]:
    """Facts found on the way that commit whatever becomes of the Command (ACC-1, RULE-07, RULE-10).

    The acting Agent's executions from before its present session end, and so does the addressed WorkItem's when its
    Execution Lease has run out. At most one draft per WorkItem, each for the state as it is.
    """
    drafts: dict[str, EventDraft] = {}
    facts = context.agents.get(command.actor.id)
    if facts is not None and command.actor.type is ActorType.AGENT:
        for record in state.executing(command.actor.id):
            if draft := _lapsed(record, context) or _replaced(record, facts, context):
                drafts[record.item.work_item_id] = draft
    addressed = _addressed(state, command)
    if addressed is not None and addressed.item.work_item_id not in drafts and (draft := _lapsed(addressed, context)):
        drafts[addressed.item.work_item_id] = draft
    return tuple(drafts.values())


def _addressed(state: GroupState, command: Command) -> WorkItemRecord | None:
    """The WorkItem that a Command speaks of, whether or not its payload has the right shape."""
    payload = command.payload
    artifact = payload.get("artifact")
    nested = artifact.get("workItemId") if isinstance(artifact, dict) else None
    for name in (command.work_item_id, payload.get("workItemId"), nested):
        if isinstance(name, str) and (record := state.work_item(name)) is not None:
            return record
    return None


def _running(record: WorkItemRecord) -> Lease | None:
    lease = record.execution_lease
    return None if lease is UNSET or lease.state is not LeaseState.ACTIVE else lease


def _lapsed(record: WorkItemRecord, context: DecisionContext) -> EventDraft | None:
    """The Execution Lease ran out: the WorkItem waits again (RULE-10)."""
    lease = _running(record)
    if lease is None or not is_past(lease.expires_at, context):
        return None
    event = WorkExecutionLeaseExpired(
        work_item_id=record.item.work_item_id,
        execution_lease=closed(lease, LeaseState.EXPIRED, context, "lease ran out"),
        status="queued",
    )
    return _fact(lease_expired, event, record, Cause(type=CauseType.TIMER, id=lease.lease_id))


def _replaced(record: WorkItemRecord, facts: AgentFacts, context: DecisionContext) -> EventDraft | None:
    """The Agent opened a newer session: what ran under the older one may not go on (MWP-WRK-014, RULE-07)."""
    lease = _running(record)
    if lease is None or lease.session_epoch >= facts.session_epoch or facts.session_event_id is None:
        return None
    event = WorkExecutionLeaseRevoked(
        work_item_id=record.item.work_item_id,
        execution_lease_id=lease.lease_id,
        execution_lease=closed(lease, LeaseState.REVOKED, context, "session replaced"),
        reason="session_replaced",
        status="queued",
        session_epoch=SessionEpoch(facts.session_epoch),
    )
    return _fact(lease_revoked, event, record, Cause(type=CauseType.EVENT, id=facts.session_event_id))


def _fact(kind: str, event: Document, record: WorkItemRecord, cause: Cause) -> EventDraft:
    return EventDraft(
        kind=kind,
        payload=to_builtins(event),
        aggregate_revision=record.item.revision + 1,
        actor=authority,
        cause=cause,
        **work_places(record.item),
    )


# --- what a decision needs -----------------------------------------------------------------------------------------


def agents_consulted(command: Command) -> frozenset[str]:
    """The Agents whose rows this decision may read: acting Agent, Coordinator, candidates, members."""
    acting = (command.actor.id,) if command.actor.type is ActorType.AGENT else ()
    payload = _payload(command)
    if isinstance(payload, Rejection):
        return frozenset(acting)
    return frozenset((*acting, *rules[command.kind].agents(payload)))


def changes_keys(command: Command) -> bool:
    """Whether this Command may bind or end a key: then nothing else is accepted meanwhile (RULE-06).

    Whoever does not keep the registry changes no key, and must not hold up anybody by asking.
    """
    rule = rules.get(command.kind)
    return rule is not None and rule.changes_keys and command.actor in registrars


def keys_consulted(command: Command) -> tuple[tuple[str, bytes | None], ...]:
    """The keys that this Command speaks of: key ID and, to bind, the raw public key; none for most kinds."""
    rule = rules.get(command.kind)
    if rule is None or isinstance(payload := _payload(command), Rejection):
        return ()
    return tuple(rule.keys(payload))


def identifiers_claimed(command: Command) -> tuple[tuple[str, str], ...]:
    """New globally unique identifiers with the kind of what they name; none when the payload has another shape."""
    payload = _payload(command)
    return () if isinstance(payload, Rejection) else rules[command.kind].claims(payload)


def nested_documents(command: Command) -> tuple[tuple[DocumentKind, dict[str, Any]], ...]:
    """Signed documents inside the payload, as received, that admission must verify too.

    None when the payload has another shape: `decide` refuses it then.
    """
    rule = rules.get(command.kind)
    if rule is None or not rule.nested or isinstance(_payload(command), Rejection):
        return ()
    found: list[tuple[DocumentKind, dict[str, Any]]] = []
    for kind, member in rule.nested:
        value = command.payload[member]
        found.extend((kind, document) for document in (value if isinstance(value, list) else [value]))
    return tuple(found)


if missing := command_payloads.keys() ^ rules.keys():
    raise ImportError(f"Commands with a payload but no rule, or the other way round: {sorted(missing)}")
