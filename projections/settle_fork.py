"""Decide, with the authority, whether what was consumed still is the history; if not, record it and begin anew.

Authoritative here: the authority's primary (RULE-21). An Event that differs from what was applied proves nothing by
itself: it may come from a history that was given up. Only when the source's own history does not contain the Cursor is
it a fork (PRJ-3). Then one transaction records what was seen and removes every row of the Group, so a crash leaves
either the old rows with their Cursor, which will be found forked again, or none and a known head to fill up to.
"""

from collections.abc import Sequence

from contracts.bounds import replay_page_events_max
from contracts.chain import ChainHash
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence
from projections.fill_gap import read_page
from projections.history import HistoryBroken, HistoryRefused, HistorySource, HistoryUnavailable, place_of
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.store import AppliedEvent, CursorMoved, Fork, Transaction


async def settle_fork(projection: Projection, source: HistorySource, group_id: str) -> Fork | None:
    """The fork that was recorded, or None when the Cursor stands on the authority's history.

    Raises as `find_fork` does, and CursorMoved when the Cursor moved meanwhile: ask again.
    """
    cursor = await projection.cursor(group_id)
    if cursor is None:
        return None
    remembered = await projection.store.read(lambda transaction: transaction.all_remembered(group_id))
    fork = await find_fork(source, projection.proof, cursor, remembered)
    if fork is not None:
        await record_fork(projection, fork)
    return fork


async def find_fork(
    source: HistorySource, proof: SignatureProof | None, cursor: Cursor, remembered: Sequence[AppliedEvent]
) -> Fork | None:
    """The fork that a Cursor is on, or None when it stands on the authority's history. Nothing is written.

    `remembered` are the Group's remembered Events. Raises HistoryUnavailable, HistoryRefused when the authority shows
    no such Group, and HistoryBroken.
    """
    group_id = cursor.group_id
    heads = await source.heads((group_id,))
    if not heads:
        raise HistoryRefused(f"the authority shows no Group {group_id}, of which {cursor.sequence} Events are applied")
    found = place_of(heads[0])
    if await _continues(source, proof, cursor, found):
        return None
    return Fork(group_id, cursor, found, await _lost(source, group_id, remembered, found))


async def record_fork(projection: Projection, fork: Fork) -> None:
    """Keep what was seen and remove the Group's rows, in one transaction. Raises CursorMoved."""

    def record(transaction: Transaction) -> None:
        if transaction.cursor(fork.group_id) != fork.seen:
            raise CursorMoved(f"{projection.name}: the Cursor of {fork.group_id} moved while its fork was being judged")
        transaction.record_fork(fork)
        transaction.count("forks", 1)
        transaction.reset_group(fork.group_id)
        transaction.note_head(fork.group_id, fork.found.sequence)

    await projection.store.transaction(record)
    projection.buffer.discard(fork.group_id)
    projection.progress.forks += 1


async def _continues(source: HistorySource, proof: SignatureProof | None, cursor: Cursor, found: Cursor) -> bool:
    """Whether the authority's history contains the Cursor's chain hash at the Cursor's sequence."""
    if found.sequence <= cursor.sequence:
        return (found.sequence, found.chain_hash) == (cursor.sequence, cursor.chain_hash)
    page = await source.page(cursor.group_id, cursor.sequence, 1)
    following = read_page(page, cursor.group_id, cursor.sequence)
    if not following:
        raise HistoryBroken(f"{cursor.group_id} ends at {found.sequence}, yet nothing follows {cursor.sequence}")
    doubt = await proof.examine(following[0]) if proof else None
    if doubt is not None:
        raise HistoryUnavailable(doubt.reason) if doubt.for_now else HistoryBroken(doubt.reason)
    return following[0].mark.previous_hash == cursor.chain_hash


async def _lost(
    source: HistorySource, group_id: str, remembered: Sequence[AppliedEvent], found: Cursor
) -> tuple[AppliedEvent, ...]:
    """Those of the remembered Events that the authority's history does not contain."""
    if not remembered:
        return ()
    last = min(remembered[-1].sequence, found.sequence)
    after = GroupSequence(remembered[0].sequence - 1)
    present: dict[GroupSequence, ChainHash] = {}
    while after < last:
        page = await source.page(group_id, after, min(replay_page_events_max, last - after))
        arrivals = read_page(page, group_id, after)
        if not arrivals:
            break
        present |= {arrival.mark.sequence: arrival.mark.chain_hash for arrival in arrivals}
        after = arrivals[-1].mark.sequence
    return tuple(event for event in remembered if present.get(event.sequence) != event.chain_hash)
