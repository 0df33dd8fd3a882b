"""Decide, with the authority, whether what was consumed still is the history; if not, record it and begin anew.

Authoritative here: the authority's primary (RULE-21). An Event that differs from what was applied proves nothing by
itself: it may come from a history that was given up. Only when the source's own history does not contain the Cursor is
it a fork (PRJ-3). Then one transaction records what was seen, removes every row of the Group, and keeps that the Group
is silent up to the head that was found, so a crash leaves either the old rows with their Cursor, which will be found
forked again, or none, a known head to fill up to, and the same silence.

A Group that the authority does not show any more may have been lost as a whole. That is believed only where it can be
told from a Group that is merely hidden: by a source that shows all Groups, which confirms that it has none, in another
incarnation than that of the Cursor. Otherwise the rows stay, and whoever asked is told why.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from contracts.bounds import replay_page_events_max
from contracts.chain import ChainHash
from contracts.cursor import Cursor, cursor_start
from contracts.identifiers import GroupSequence
from contracts.timestamps import format_timestamp
from projections.fill_gap import read_page
from projections.history import (
    GroupNotShown,
    HistoryBroken,
    HistorySource,
    HistoryUnavailable,
    place_of,
)
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.store import AppliedEvent, CursorMoved, Fork, Transaction


async def settle_fork(projection: Projection, source: HistorySource, group_id: str) -> Fork | None:
    """The fork that was recorded, or None when the Cursor stands on the authority's history.

    Raises as `find_fork` does, and CursorMoved when the Cursor moved meanwhile: ask again.
    """
    cursor, remembered = await projection.store.read(
        lambda transaction: (transaction.cursor(group_id), transaction.all_remembered(group_id))
    )
    if cursor is None:
        return None
    hidden = projection.visible_after.get(group_id, GroupSequence(0))
    comparable = [event for event in remembered if event.sequence > hidden]
    fork = await find_fork(source, projection.proof, projection.store.organization_id, cursor, comparable)
    if fork is not None:
        await record_fork(projection, fork)
    return fork


async def find_fork(
    source: HistorySource,
    proof: SignatureProof | None,
    organization_id: str,
    cursor: Cursor,
    remembered: Sequence[AppliedEvent],
) -> Fork | None:
    """The fork that a Cursor is on, or None when it stands on the authority's history. Nothing is written.

    `remembered` are the Group's remembered Events, those that the source shows. Raises HistoryUnavailable,
    HistoryRefused when the authority shows no such Group and it may exist all the same, and HistoryBroken.
    """
    group_id = cursor.group_id
    heads = await source.heads((group_id,))
    if heads:
        found = place_of(heads[0])
        if await _continues(source, proof, cursor, found):
            return None
        lost, shared = await _compare(source, group_id, remembered)
    else:
        found = cursor_start(organization_id, group_id, await _incarnation_without(source, cursor))
        lost, shared = tuple(remembered), GroupSequence(0)
    return Fork(group_id, cursor, found, lost, shared, format_timestamp(datetime.now(UTC)))


async def record_fork(projection: Projection, fork: Fork) -> None:
    """Keep what was seen and remove the Group's rows, in one transaction. Raises CursorMoved."""

    def record(transaction: Transaction) -> None:
        if transaction.cursor(fork.group_id) != fork.seen:
            raise CursorMoved(f"{projection.name}: the Cursor of {fork.group_id} moved while its fork was being judged")
        transaction.record_fork(fork)
        transaction.count("forks", 1)
        transaction.reset_group(fork.group_id)
        transaction.note_head(fork.group_id, fork.found.sequence)
        transaction.keep_silent(fork.group_id, fork.found.sequence)

    await projection.store.transaction(record)
    projection.buffer.discard(fork.group_id)
    projection.progress.forks += 1


async def _incarnation_without(source: HistorySource, cursor: Cursor) -> str:
    """The current incarnation, which has lost the Cursor's Group. Raises HistoryRefused when that is not certain."""
    shown = f"the authority shows no Group {cursor.group_id}, of which {cursor.sequence} Events are applied"
    if not source.shows_all:
        raise GroupNotShown(
            f"{shown}: either this Principal is no member any more, or the Group was lost; its rows stay"
        )
    try:
        await source.page(cursor.group_id, GroupSequence(0), 1)
    except GroupNotShown:
        incarnation = await source.incarnation()
    else:
        raise HistoryUnavailable(f"{shown}, yet it has one")
    if incarnation == cursor.incarnation:
        raise GroupNotShown(f"{shown} in incarnation {incarnation}, which is still the current one; its rows stay")
    return incarnation


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


async def _compare(
    source: HistorySource, group_id: str, remembered: Sequence[AppliedEvent]
) -> tuple[tuple[AppliedEvent, ...], GroupSequence | None]:
    """Those of the remembered Events that the authority's history lacks, and the last sequence that both have."""
    if not remembered:
        return (), None
    first, last = remembered[0].sequence, remembered[-1].sequence
    after = GroupSequence(first - 1)
    present: dict[GroupSequence, ChainHash] = {}
    while after < last:
        page = await source.page(group_id, after, min(replay_page_events_max, last - after))
        arrivals = read_page(page, group_id, after)
        if not arrivals:
            break
        present |= {arrival.mark.sequence: arrival.mark.chain_hash for arrival in arrivals}
        after = arrivals[-1].mark.sequence
    common = [event.sequence for event in remembered if present.get(event.sequence) == event.chain_hash]
    if len(common) == len(remembered):
        raise HistoryUnavailable(f"the history of {group_id} changed while its head was compared")
    # A chain hash binds everything before it: what follows a lost Event is lost.
    lost = tuple(event for event in remembered if not common or event.sequence > common[-1])
    if common:
        return lost, common[-1]
    return lost, GroupSequence(0) if first == 1 else None
