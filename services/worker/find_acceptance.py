"""What this Agent accepted a WorkItem under, read from the history: the queue keeps where, the Event says what."""

from functools import partial
from typing import Final

import msgspec

from contracts.event import Event
from contracts.event_contracts import current_payload
from contracts.payloads.work import WorkOfferAccepted
from contracts.upcasting import EventUnread
from projections.arrival import UnreadableEvent, read_arrival
from projections.proof import SignatureProof
from projections.store import ProjectionStore
from projections.work_queue.read_queue import read_inbox
from services.agent.connect import Client
from services.agent.read_history import Unavailable
from services.agent.send_command import Refusal
from services.worker.assigned_work import Acceptance, AssignedWork

inbox_page_entries: Final = 500
"""Inbox entries read at once."""


async def find_acceptance(
    store: ProjectionStore, client: Client, proof: SignatureProof, work: AssignedWork
) -> Acceptance:
    """Card version and pinned capabilities of the current ownership.

    Raises Unavailable when it is not to be had, or not proven to be the authority's.
    """
    for sequence in reversed(await _accepted_at(store, work)):
        page = await client.history.group_page(work.group_id, sequence - 1, limit=1)
        if isinstance(page, Refusal):
            raise Unavailable(f"{work.group_id}: {page.code.value}: {page.rejection.message}")
        for replayed in page.events:
            await _prove(proof, replayed.event, (work.group_id, sequence))
            event = msgspec.json.decode(replayed.event, type=Event)
            try:
                accepted = msgspec.convert(current_payload(event), WorkOfferAccepted)
            except EventUnread as fault:
                raise Unavailable(f"{work.group_id} at {sequence}: {fault}") from fault
            if accepted.owner.ownership_lease_id == work.ownership_lease_id:
                return Acceptance(accepted.owner.agent_card_version, accepted.owner.capability_pins)
    raise Unavailable(f"no acceptance of {work.work_item_id} under lease {work.ownership_lease_id} is known")


async def _prove(proof: SignatureProof, raw: msgspec.Raw, place: tuple[str, int]) -> None:
    """That this is the authority's Event at this place of its Group. Raises Unavailable."""
    try:
        arrival = read_arrival(raw)
    except UnreadableEvent as fault:
        raise Unavailable(f"{place[0]} at {place[1]}: {fault}") from fault
    if (doubt := await proof.examine(arrival)) is not None:
        raise Unavailable(f"{place[0]} at {place[1]} is not proven: {doubt.reason}")
    if (arrival.mark.group_id, arrival.mark.sequence) != place:
        raise Unavailable(f"{arrival.mark.group_id} at {arrival.mark.sequence} was given in place of {place}")


async def _accepted_at(store: ProjectionStore, work: AssignedWork) -> list[int]:
    """Group sequences of this Agent's acceptances of the WorkItem, oldest first."""
    found: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await store.read(partial(read_inbox, group_id=work.group_id, after=after, limit=inbox_page_entries))
        found += [
            entry.sequence
            for entry in page
            if entry.kind == "work.offer.accepted" and entry.work_item_id == work.work_item_id
        ]
        after = page[-1].sequence if len(page) == inbox_page_entries else None
    return found
