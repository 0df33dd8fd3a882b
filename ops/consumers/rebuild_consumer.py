"""Rebuild a projection beside its live version and exchange them (PRJ-4, RULE-22).

The live version is only read until the exchange, which is one transaction; what a crash leaves at each point stands in
`projections/exchange_groups.py`. Rounds: while the live version gains Events that the green one has not fetched yet,
the exchange is refused, these Groups are brought to the head again, and it is tried anew.
"""

import asyncio
import sqlite3
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection

from contracts.cursor import Cursor
from contracts.identifiers import organization_shard
from ops.command_fault import CommandFault
from ops.consumers.green import HeldGreen, RebuildRuns, green_beside
from ops.consumers.live_version import LiveVersion, read_digests, read_live, read_remembered, read_skips
from ops.consumers.rebuild_progress import Progress, Tell
from ops.consumers.steady_history import SteadyHistory
from ops.cursor_report import cursors_in_page_max, read_groups
from ops.projection_file import NotAProjection
from ops.projection_place import ProjectionPlace
from ops.verify.verify_projections import visible_after
from projections.apply_event import resume_stopped
from projections.copy_skips import copy_skips
from projections.digest import rows_digest
from projections.exchange_groups import ExchangeRefused, Judged, Standing, compare_cursors, exchange_groups
from projections.history import HistoryBroken, HistoryRefused, HistoryUnavailable
from projections.projection import Projection
from projections.proof import SignatureProof
from projections.rebuild import rebuild
from projections.settle_fork import find_fork
from projections.store import Fork, StoreReplaced
from projections.store.layout import Identity

exchange_rounds_max: Final = 64
"""Attempts to exchange before the live version is too quick."""
round_seconds: Final = 0.25
"""Seconds after a round in which nothing was left to replay: the live version is at work, or has to catch up."""


class GroupOutcome(Struct, frozen=True, kw_only=True, rename="camel"):
    """One exchanged Group: the place and digest of its rebuilt rows, and how the live one stood.

    `equal` tells whether the live rows were the same; null when they stood at another place.
    """

    group_id: str
    sequence: int | None
    chain_hash: str | None
    digest: str
    live: Standing
    equal: bool | None


class RebuildReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was rebuilt and exchanged. `events` were replayed by this run, which `resumed` an unfinished one or not."""

    name: str
    version: int
    place: str
    edition: str
    groups: tuple[GroupOutcome, ...]
    events: int
    seconds: float
    resumed: bool
    stopped: tuple[str, ...]


class Means(Struct, frozen=True):
    """What a rebuild works with: history and proof from the authority, and its database for the list of Groups."""

    history: SteadyHistory
    proof: SignatureProof
    database: AsyncConnection[Any]
    organization_id: str
    tell: Tell


async def rebuild_consumer(place: ProjectionPlace, group_ids: Sequence[str], means: Means) -> RebuildReport:
    """Rebuild these Groups of a projection, or without any all of it, and exchange them.

    Raises CommandFault, whose message says what is left and whether running it again goes on.
    """
    try:
        live = read_live(place, means.organization_id)
        beside = green_beside(place)
        resumed = beside.is_there()
        with beside.held() as green:
            return await _Rebuild(place, live, green, means).run(group_ids, resumed=resumed)
    except (RebuildRuns, NotAProjection) as fault:
        raise CommandFault(f"{fault}. Nothing is changed") from fault
    except (HistoryUnavailable, HistoryRefused, HistoryBroken) as fault:
        raise CommandFault(
            f"the authority's history cannot be replayed: {fault}. The live version is unchanged; run it again to go "
            "on from what is rebuilt"
        ) from fault
    except (sqlite3.Error, psycopg.Error, OSError, StoreReplaced) as fault:
        raise CommandFault(
            f"a store of {place} cannot be used: {str(fault).strip()}. The live version is as it was or exchanged "
            "whole; make room or start the server, then run it again to go on"
        ) from fault


class _Rebuild:
    """One run: the green version is held by it alone."""

    def __init__(self, place: ProjectionPlace, live: LiveVersion, green: HeldGreen, means: Means) -> None:
        self._place = place
        self._live = live
        self._green = green
        self._means = means
        self._identity = Identity(live.consumer, live.organization_id)
        self._began = time.monotonic()
        self._projection: Projection
        self._events = 0

    async def run(self, named: Sequence[str], *, resumed: bool) -> RebuildReport:
        """Fill the green version, compare, exchange, remove it."""
        store = await self._green.open(self._live.consumer, self._live.organization_id)
        try:
            self._projection = Projection(store, self._means.proof)
            await resume_stopped(store)
            group_ids, events = await self._choose(named)
            await self._replay(group_ids, events)
            equal = await self._compare(group_ids)
            edition, standings = await self._exchange(group_ids, whole=not named)
            outcomes = await self._outcomes(standings, equal)
            stops = await store.read(lambda transaction: transaction.stops())
        finally:
            await store.close()
        self._green.remove()
        return RebuildReport(
            name=self._live.consumer.name,
            version=self._live.consumer.version,
            place=str(self._place),
            edition=edition,
            groups=outcomes,
            events=self._events,
            seconds=round(time.monotonic() - self._began, 3),
            resumed=resumed,
            stopped=tuple(stop.group_id for stop in stops if stop.group_id in standings),
        )

    async def _choose(self, named: Sequence[str]) -> tuple[list[str], int]:
        """The Groups to rebuild, and how many Events are to be replayed. Raises CommandFault for an unknown Group."""
        heads = await self._heads()
        unknown = [group_id for group_id in named if group_id not in heads]
        if unknown:
            raise CommandFault(f"{self._means.organization_id} has no Group {unknown[0]}; check the ID")
        # A Worker sees its own Groups only; a projection of the server's side has them all.
        others = set() if self._live.consumer.variant else heads.keys()
        # What the authority lost as a whole has nothing to replay: the exchange puts it on record.
        chosen = sorted(set(named) or (self._live.group_ids & heads.keys()) | others)
        await self._see(chosen)
        starts = dict(self._projection.visible_after)
        starts |= {cursor.group_id: cursor.sequence for cursor in await self._projection.cursors()}
        return chosen, sum(max(0, heads.get(group_id, 0) - starts.get(group_id, 0)) for group_id in chosen)

    async def _heads(self) -> dict[str, int]:
        """The head of every Group of the Organization that a projection is of."""
        heads: dict[str, int] = {}
        after: str | None = ""
        while after is not None:
            page, after = await read_groups(
                self._means.database, self._means.organization_id, None, after, cursors_in_page_max
            )
            heads |= {line.group_id: line.head.sequence for line in page if line.shard_id != organization_shard}
        return heads

    async def _see(self, group_ids: Iterable[str]) -> None:
        """Begin a late member's Groups where its history begins (RULE-23)."""
        starts = await visible_after(
            self._means.database, self._means.organization_id, self._live.consumer.variant, group_ids
        )
        self._projection.visible_after = dict(self._projection.visible_after) | starts

    async def _replay(self, group_ids: Sequence[str], events: int) -> None:
        """Bring the green version of these Groups to their heads, telling how far it is after each page.

        What is skipped in the live version by now is skipped here.
        """
        await copy_skips(self._projection.store, await asyncio.to_thread(read_skips, self._place))
        history = self._means.history
        done, fetched_before, began = 0, history.events, time.monotonic()

        def tell() -> None:
            progress = Progress(
                groups_done=done,
                groups=len(group_ids),
                events_done=history.events - fetched_before,
                events=events,
                seconds=time.monotonic() - began,
            )
            self._means.tell(progress)

        history.on_page = tell
        for group_id in group_ids:
            rebuilt = await rebuild(self._projection, history, (group_id,))
            self._events += rebuilt.events
            done += 1
            tell()

    async def _compare(self, group_ids: Sequence[str]) -> dict[str, bool]:
        """Whether live and green rows are the same, of Groups that stand at the same place."""
        live = await asyncio.to_thread(read_digests, self._place, group_ids)
        return {
            group_id: digest == await self._digest(group_id)
            for group_id, (cursor, digest) in live.items()
            if cursor == await self._projection.cursor(group_id)
        }

    async def _digest(self, group_id: str) -> str:
        consumer = self._live.consumer
        return await self._projection.store.read(lambda transaction: rows_digest(transaction, consumer, group_id))

    async def _exchange(self, group_ids: Sequence[str], *, whole: bool) -> tuple[str, dict[str, Standing]]:
        """Exchange, after as many rounds as it takes. Raises CommandFault when the live version stays ahead."""
        edition, unready = uuid.uuid4().hex, dict[str, Standing]()
        for _ in range(exchange_rounds_max):
            exchange = partial(
                exchange_groups,
                group_ids=group_ids,
                judged=await self._judge(group_ids if not whole else None),
                edition=edition,
                whole=whole,
            )
            try:
                standings = await asyncio.to_thread(self._green.exchange, self._identity, exchange)
            except ExchangeRefused as refused:
                unready = dict(refused.standings)
            except psycopg.errors.LockNotAvailable:
                await asyncio.sleep(round_seconds)
                continue
            else:
                return edition, standings
            await self._see(unready)
            before = self._events
            await self._replay(sorted(unready), 0)
            await self._check_stops(unready)
            if self._events == before:
                await asyncio.sleep(round_seconds)
        raise CommandFault(
            f"the live version could not be exchanged in {exchange_rounds_max} rounds ({ExchangeRefused(unready)}). It "
            "is unchanged; let its process catch up, or wait until less is going on, and run it again"
        )

    async def _check_stops(self, unready: Collection[str]) -> None:
        """Raises CommandFault for a Group whose replay stops before what the live version has."""
        stops = await self._projection.store.read(lambda transaction: transaction.stops())
        for stop in stops:
            if stop.group_id in unready:
                raise CommandFault(
                    f"{stop.group_id} stops at {stop.sequence} when it is replayed ({stop.reason}), the live version "
                    "is beyond it and unchanged; rebuild the others with --group"
                )

    async def _judge(self, group_ids: Sequence[str] | None) -> Judged:
        """Ask the authority about the live Cursors that the green version cannot vouch for."""
        live = read_live(self._place, self._means.organization_id)
        on_history: dict[str, Cursor] = {}
        forks: dict[str, Fork] = {}
        for group_id, cursor in live.cursors.items():
            if (group_ids is None or group_id in group_ids) and not await self._vouches(cursor):
                remembered = read_remembered(self._place, group_id)
                means = self._means
                fork = await find_fork(means.history, means.proof, means.organization_id, cursor, remembered)
                if fork is None:
                    on_history[group_id] = cursor
                else:
                    forks[group_id] = fork
        return Judged(on_history, forks)

    async def _vouches(self, live: Cursor) -> bool:
        """Whether the green version has applied what a live Cursor stands on."""
        return await self._projection.store.read(
            lambda transaction: compare_cursors(
                live,
                transaction.cursor(live.group_id),
                lambda sequence: transaction.remembered(live.group_id, sequence),
            ).may_be_exchanged()
        )

    async def _outcomes(self, standings: Mapping[str, Standing], equal: Mapping[str, bool]) -> tuple[GroupOutcome, ...]:
        """One line per exchanged Group."""
        outcomes: list[GroupOutcome] = []
        for group_id, live in standings.items():
            cursor = await self._projection.cursor(group_id)
            outcomes.append(
                GroupOutcome(
                    group_id=group_id,
                    sequence=cursor.sequence if cursor else None,
                    chain_hash=cursor.chain_hash.hex() if cursor else None,
                    digest=await self._digest(group_id),
                    live=live,
                    equal=equal.get(group_id),
                )
            )
        return tuple(outcomes)
