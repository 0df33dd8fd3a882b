"""Each projection against the fold of the log at its own Cursors, digest for digest (MWP-WRK-008, NEW-4)."""

import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from psycopg import AsyncConnection

from contracts.cursor import Cursor
from contracts.entities import MembershipRecord, decode_entity
from contracts.group_state import EntityKind
from contracts.identifiers import GroupSequence
from contracts.payloads.requests import GroupHead, GroupPage, ReplayedEvent
from ops.cursor_report import judge_cursors
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace, open_place
from ops.verify.finding import Finding, Report
from ops.verify.verify_log import page_rows_max, sql
from projections.consumer import Consumer
from projections.copy_skips import copy_skips
from projections.digest import GroupDigest, projection_digests
from projections.history import HistoryBroken, HistoryRefused
from projections.projection import Projection
from projections.rebuild import rebuild
from projections.store import Decision
from projections.store.sqlite import SqliteStore


class LogHistory:
    """`projections.history.HistorySource` straight from the log, each Group ending at a given Cursor."""

    shows_all: Final = False

    def __init__(self, connection: AsyncConnection[Any], organization_id: str, ends: Mapping[str, Cursor]) -> None:
        """`ends` holds the place at which the history of each Group shall end."""
        self._connection = connection
        self._organization_id = organization_id
        self._ends = ends

    async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
        """Up to `limit` Events after `after`, at most to the Group's end."""
        end = self._ends[group_id]
        asked = {
            "organization_id": self._organization_id,
            "group_id": group_id,
            "after": after,
            "rows_max": min(limit, page_rows_max, max(0, end.sequence - after)),
        }
        rows = await (await self._connection.execute(sql.read_chained_page, asked, binary=True)).fetchall()
        last = rows[-1][0] if rows else end.sequence
        return GroupPage(
            events=tuple(ReplayedEvent(event=msgspec.Raw(raw), chain_hash=chain.hex()) for _, raw, chain in rows),
            next=last if last < end.sequence else None,
            head=_head(end),
        )

    async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
        """The ends of these Groups."""
        return [_head(self._ends[group_id]) for group_id in group_ids if group_id in self._ends]

    async def incarnation(self) -> str:
        """Raises HistoryRefused: what ends at given places says nothing of the current one."""
        raise HistoryRefused("a history that ends at given places has no current incarnation")


class _Live(Struct, frozen=True):
    """A live projection as one reading transaction saw it."""

    place: ProjectionPlace
    consumer: Consumer
    cursors: dict[str, Cursor]
    digests: tuple[GroupDigest, ...]
    skips: list[Decision]


async def verify_projections(
    connection: AsyncConnection[Any], organization_id: str, places: Sequence[ProjectionPlace], report: Report
) -> None:
    """Rebuild each projection from the log beside the live one, up to the same places, and compare."""
    for place in places:
        try:
            live = _read(place, organization_id)
        except NotAProjection as fault:
            report.add(Finding(check="projections", message=str(fault)))
            continue
        on_history: dict[str, Cursor] = {}
        for line in await judge_cursors(connection, organization_id, list(live.cursors.values())):
            report.count("cursors")
            if line.verdict.is_finding:
                message = (
                    f"the Cursor of {live.consumer.name} in {place.name} is not on this history: {line.verdict.value}"
                )
                report.add(Finding(check="cursors", message=message, group_id=line.group_id, sequence=line.sequence))
            else:
                on_history[line.group_id] = live.cursors[line.group_id]
        await _compare(connection, organization_id, live, on_history, report)


async def _compare(
    connection: AsyncConnection[Any],
    organization_id: str,
    live: _Live,
    ends: dict[str, Cursor],
    report: Report,
) -> None:
    place = live.place
    try:
        async with replay_beside(live.consumer, organization_id, live.skips) as replayed:
            await replay_to(replayed, connection, ends)
            rebuilt = await replayed.store.read(lambda transaction: projection_digests(transaction, live.consumer))
    except HistoryBroken as fault:
        message = f"{live.consumer.name} in {place.name} cannot be rebuilt: {fault}"
        report.add(Finding(check="projections", message=message))
        return
    expected = {digest.group_id: digest for digest in rebuilt}
    for digest in live.digests:
        report.count("projections")
        found = expected.get(digest.group_id)
        reached = 0 if found is None else found.sequence
        if digest.group_id in ends and (found is None or found.digest != digest.digest):
            message = f"rows of {live.consumer.name} in {place.name} differ from the fold of the log"
            if reached < digest.sequence:
                message = (
                    f"rows of {live.consumer.name} in {place.name} cannot be compared: this version reads the log "
                    f"up to sequence {reached}"
                )
            report.add(
                Finding(check="projections", message=message, group_id=digest.group_id, sequence=digest.sequence)
            )


@asynccontextmanager
async def replay_beside(
    consumer: Consumer, organization_id: str, skips: Sequence[Decision]
) -> AsyncIterator[Projection]:
    """An empty projection in a file of its own, which passes over `skips`, for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="weavehold-verify-") as folder:
        store = await SqliteStore.open(Path(folder) / "replayed.sqlite", consumer, organization_id)
        try:
            await copy_skips(store, skips)
            yield Projection(store)
        finally:
            await store.close()


async def replay_to(projection: Projection, connection: AsyncConnection[Any], ends: Mapping[str, Cursor]) -> None:
    """Replay Groups from the log up to these places on it. Raises HistoryBroken."""
    store = projection.store
    projection.visible_after = await visible_after(connection, store.organization_id, store.consumer.variant, ends)
    await rebuild(projection, LogHistory(connection, store.organization_id, ends), sorted(ends))


def _read(place: ProjectionPlace, organization_id: str) -> _Live:
    """The Cursors, digests and skips of a projection. Raises NotAProjection."""
    with open_place(place) as opened:
        if opened.organization_id != organization_id:
            raise NotAProjection(f"{place} is a projection of {opened.organization_id or 'nobody'}, not ours")
        cursors = {cursor.group_id: cursor for cursor in opened.snapshot.cursors()}
        digests = projection_digests(opened.snapshot, opened.consumer)
        return _Live(place, opened.consumer, cursors, digests, opened.snapshot.skips())


async def visible_after(
    connection: AsyncConnection[Any], organization_id: str, member: str, group_ids: Iterable[str]
) -> dict[str, GroupSequence]:
    """Where a late member's history begins in each Group; nothing for a projection that is nobody's own."""
    asked = {"organization_id": organization_id, "principal_id": member, "group_ids": list(group_ids)}
    cursor = await connection.execute(sql.read_memberships_of, asked, binary=True)
    starts: dict[str, GroupSequence] = {}
    for group_id, body in await cursor.fetchall():
        record = decode_entity(EntityKind.MEMBERSHIP, body)
        if isinstance(record, MembershipRecord):
            starts[group_id] = GroupSequence(record.membership.visibility_start_sequence)
    return starts


def _head(end: Cursor) -> GroupHead:
    return GroupHead(
        incarnation=end.incarnation, group_id=end.group_id, sequence=end.sequence, chain_hash=end.chain_hash.hex()
    )
