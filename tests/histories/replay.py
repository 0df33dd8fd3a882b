"""Recorded histories through every reader: the listed consumers, and the fold that the authority's state comes from."""

from collections.abc import Mapping
from itertools import batched

import msgspec

from contracts.entities import EntityKind, entity_bytes, state_digest, state_version
from contracts.event import Event
from contracts.event_contracts import event_contracts
from contracts.group_state import GroupState, evolve, facts_of
from contracts.upcasting import EventContracts, EventUnread
from contracts.verification import RegisteredKey
from projections.arrival import read_arrival
from projections.consumer import Consumer
from projections.digest import projection_digests
from projections.listing import listed_consumers
from projections.projection import Projection
from projections.proof import KnownKeys, SignatureProof
from projections.store import ProjectionStore
from tests.histories.recorded import Made, Reached, Recorded

state_reader = "state"
"""The authority's own fold, among the names of consumers."""
batch_events = 32
"""Events applied in one transaction."""
record_digests = "python -m tests.histories.record --digests"

type _Rows = dict[tuple[EntityKind, str], tuple[int, bytes]]


class RecordedKeys:
    """The keys that a history was signed with: a KeyResolver."""

    def __init__(self, recorded: Recorded) -> None:
        self._by_id = {key.key_id: key for key in recorded.proof.keys}

    def resolve(self, key_id: str) -> RegisteredKey | None:
        """The key with this ID."""
        return self._by_id.get(key_id)


def consumers_of(recorded: Recorded) -> tuple[Consumer, ...]:
    """Every listed consumer; the work queue is that of the history's Agent."""
    return listed_consumers(recorded.proof.agent_id)


async def project(store: ProjectionStore, recorded: Recorded) -> Made:
    """What the store's consumer makes of a history, delivered in the order of the log and proven by its keys."""
    projection = Projection(store, SignatureProof(KnownKeys(RecordedKeys(recorded))))
    for batch in batched(map(read_arrival, recorded.events), batch_events):
        applied = await projection.receive(batch)
        assert (applied.unproven, applied.questions, applied.ahead) == ([], [], [])
    digests = await store.read(lambda transaction: projection_digests(transaction, store.consumer))
    return Made(store.consumer.version, {each.group_id: Reached(each.sequence, each.digest) for each in digests})


def fold(recorded: Recorded, contracts: EventContracts = event_contracts) -> Made:
    """What the authority's own fold makes of a history; a Group ends where an Event must not be read."""
    states: dict[str, GroupState] = {}
    rows: dict[str, _Rows] = {}
    reached: dict[str, int] = {}
    unread: set[str] = set()
    for raw in recorded.events:
        event = msgspec.json.decode(raw, type=Event)
        group_id = str(event.group_id)
        if group_id in unread:
            continue
        state = states.setdefault(group_id, GroupState.empty(recorded.proof.organization_id, group_id))
        try:
            changes = evolve(state, facts_of(event, contracts))
        except EventUnread:
            unread.add(group_id)
            continue
        state.apply(changes)
        reached[group_id] = event.group_sequence
        for change in changes:
            rows.setdefault(group_id, {})[change.key] = (change.revision, entity_bytes(change.entity))
    return Made(
        state_version,
        {group_id: Reached(sequence, rows_digest(rows.get(group_id, {}))) for group_id, sequence in reached.items()},
    )


def rows_digest(rows: Mapping[tuple[EntityKind, str], tuple[int, bytes]]) -> str:
    """The digest of entity rows by their names."""
    return state_digest((kind, name, revision, raw) for (kind, name), (revision, raw) in rows.items())


def difference(history: str, reader: str, expected: Made | None, found: Made) -> str | None:
    """Why what a reader makes of a history is not what was recorded, and what to do; None when it is."""
    if expected is None:
        return f"it is not recorded what {reader} makes of {history}: look at its rows, then run {record_digests}"
    if expected.version != found.version:
        versions = f"version {expected.version} of {reader}, which is at version {found.version} now"
        return f"what is recorded of {history} is of {versions}: run {record_digests}"
    if expected.groups == found.groups:
        return None
    names = sorted(expected.groups.keys() | found.groups.keys())
    differing = [name for name in names if expected.groups.get(name) != found.groups.get(name)]
    meant = (
        "raise contracts.entities.state_version with a migration that folds every Group anew"
        if reader == state_reader
        else f"raise the version of {reader}, so that stored rows are discarded and replayed"
    )
    return (
        f"old Events no longer mean what they meant: version {found.version} of {reader} makes something else of "
        f"{', '.join(differing)} in {history}. Undo the change, or give the Event kind a new contract version with an "
        f"upcaster (contracts/event_contracts.py). If other rows are meant, {meant}, and run {record_digests}"
    )
