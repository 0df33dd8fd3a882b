"""Signed histories of whole Missions, as the authority's own decisions make them, for any Group and incarnation."""

from collections.abc import Sequence
from functools import cache

from contracts.cursor import EventMark
from contracts.documents.common import ActorType
from contracts.group_state import EventFacts
from contracts.signature import SigningKey
from tests.builders import BuiltEvent, build_event, signing_key, test_incarnation, test_organization
from tests.mission_documents import coordinator, message, worker
from tests.scene import Scene

authority_key: SigningKey = signing_key("authority", ActorType.SERVICE)
agent_id: str = worker.id
"""The Agent whose work queue the tests look at."""


@cache
def mission_facts() -> tuple[EventFacts, ...]:
    """A Mission with WorkItems in many states, offers won, lost and replaced, leases that ended in every way."""
    scene = Scene().with_work("verified", "urn:weavehold:work-item:verified")
    scene.with_work("submitted", "urn:weavehold:work-item:submitted")
    scene.with_work("active", "urn:weavehold:work-item:paused")
    checkpoint = {"phase": "counting", "completedMilestones": ["half"], "createdAt": scene.time}
    paused = scene.fences("urn:weavehold:work-item:paused") | {"checkpoint": checkpoint}
    scene.accept("work.checkpoint", paused, worker)
    scene.with_work("active", "urn:weavehold:work-item:active")
    renewal = scene.fences("urn:weavehold:work-item:active") | {"leaseSeconds": 600}
    scene.pass_time(5).accept("ext.missionweaveprotocol.core.work_execution_lease_renew", renewal, worker)
    scene.with_work("offered", "urn:weavehold:work-item:offered")
    scene.with_work("open", "urn:weavehold:work-item:open")
    for number in range(1, 6):
        mentions = [{"type": "agent", "id": worker.id}] if number % 2 else []
        scene.accept("message.post", message(number, mentions=mentions), coordinator)
    scene.replace_session(worker).accept("message.post", message(6), worker)
    return tuple(scene.events)


def mission_history(
    group_id: str, *, messages: int = 0, salt: str = "", incarnation: str = test_incarnation
) -> list[BuiltEvent]:
    """The Mission's Events in `group_id`, then `messages` more Messages; another `salt` gives other Events."""
    return list(_mission_history(group_id, messages, salt, incarnation))


@cache
def _mission_history(group_id: str, messages: int, salt: str, incarnation: str) -> tuple[BuiltEvent, ...]:
    facts = [*mission_facts(), *more_messages(100, messages)]
    return tuple(extend_history([], group_id, facts, salt=salt, incarnation=incarnation))


def extend_history(
    history: Sequence[BuiltEvent],
    group_id: str,
    facts: Sequence[EventFacts],
    *,
    salt: str = "",
    incarnation: str = test_incarnation,
) -> list[BuiltEvent]:
    """`history` and then `facts`, signed and chained on."""
    built = list(history)
    previous: EventMark | None = built[-1].mark if built else None
    for fact in facts:
        event = build_event(
            fact.kind,
            fact.payload,
            authority_key,
            organization_id=test_organization,
            group_id=group_id,
            incarnation=incarnation,
            previous=previous,
            occurred_at=fact.occurred_at,
            aggregate_revision=fact.aggregate_revision,
            workItemId=fact.payload.get("workItemId"),
            correlationId=f"urn:test:correlation:{salt}{len(built) + 1}",
        )
        built.append(event)
        previous = event.mark
    return built


def more_messages(first: int, count: int) -> list[EventFacts]:
    """Facts of `count` Messages numbered from `first`."""
    template = mission_facts()[-1]
    return [_message_fact(template, number) for number in range(first, first + count)]


def _message_fact(template: EventFacts, number: int) -> EventFacts:
    payload = {"message": dict(template.payload["message"]) | {"messageId": f"urn:test:message:{number}"}}
    return EventFacts(
        group_id=template.group_id,
        sequence=template.sequence,
        kind=template.kind,
        aggregate_revision=template.aggregate_revision,
        occurred_at=template.occurred_at,
        payload=payload,
    )
