"""Contiguity, chain and signatures of every Event, from its stored bytes alone (NEW-5, MWP-EVT-005).

An Event that this version must not read is still verified so far; its contract is a finding of its own (PRJ-5).
"""

import hashlib
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from msgspec import UNSET
from psycopg import AsyncConnection

from contracts.canonical import signing_bytes
from contracts.chain import ChainHash, SigningHash, chain_next, chain_start
from contracts.event import Event, history_resumed
from contracts.event_contracts import current_payload, event_contracts
from contracts.identifiers import organization_shard
from contracts.service_principals import authority
from contracts.signature import base64url_bytes, verify_ed25519
from contracts.timestamps import format_timestamp, instant
from contracts.upcasting import EventUnread
from contracts.verification import RegisteredKey
from ops.verify.finding import Finding, Report
from services.authority.key_book import registered_key
from services.process.statements import load

page_rows_max: Final = 1_000
"""Events read in one page."""

sql = load(__package__)


class LogVerifier:
    """Walks one shard's log after another and remembers where each Group's chain stands.

    Holds one chain hash per Group and, of the shard it walks, one number per Event. `ends` are then the last positions
    of each shard's log in each incarnation.
    """

    def __init__(self, connection: AsyncConnection[Any], organization_id: str, report: Report) -> None:
        """Findings go into `report`: checks `log`, `chain`, `incarnations`, `signature`, `contracts` and `receipts`."""
        self._connection = connection
        self._asked = {"organization_id": organization_id, "rows_max": page_rows_max}
        self._organization_id = organization_id
        self._report = report
        self.ends: dict[tuple[int, str], int] = {}
        self._heads: dict[str, tuple[int, ChainHash]] = {}
        self._ordinals: dict[str, int] = {}
        self._stands_in: dict[str, str] = {}
        self._keys: dict[str, RegisteredKey] = {}

    async def verify(self) -> None:
        """Verify all shards."""
        keys = await (await self._connection.execute(sql.read_keys, self._asked, binary=True)).fetchall()
        self._keys = {row[0]: registered_key(row) for row in keys}
        known = await (await self._connection.execute(sql.read_incarnations, self._asked)).fetchall()
        self._ordinals = {incarnation: ordinal for ordinal, (incarnation,) in enumerate(known, start=1)}
        for (shard_id,) in await (await self._connection.execute(sql.read_shards, self._asked)).fetchall():
            expected = 1
            receipted = await self._receipted(shard_id)
            groups = await self._groups(shard_id)
            async for row in self._rows(shard_id):
                if row[0] != expected:
                    self._find("log", row, f"shard {shard_id} goes from position {expected - 1} to {row[0]}")
                expected = row[0] + 1
                self.ends[shard_id, row[1]] = row[0]
                if row[2] not in groups:
                    self._find("log", row, f"the Group is not registered in shard {shard_id}")
                event = self._event(row)
                if event is not None and event.command_hash is not UNSET and row[0] not in receipted:
                    self._find("receipts", row, f"Event {event.event_id} belongs to a Command without a Receipt")

    async def _groups(self, shard_id: int) -> set[str]:
        """The Groups of a shard; "" stands for the Organization's own history in shard 0."""
        asked = self._asked | {"shard_id": shard_id}
        cursor = await self._connection.execute(sql.read_shard_groups, asked, binary=True)
        named = {name for (name,) in await cursor.fetchall()}
        return named | {""} if shard_id == organization_shard else named

    async def _receipted(self, shard_id: int) -> set[int]:
        """The positions of a shard that stand in some Receipt."""
        cursor = await self._connection.execute(
            sql.read_receipted_positions, self._asked | {"shard_id": shard_id}, binary=True
        )
        return {first + place for first, count in await cursor.fetchall() for place in range(count)}

    async def _rows(self, shard_id: int) -> AsyncIterator[tuple[Any, ...]]:
        after = 0
        while True:
            asked = self._asked | {"shard_id": shard_id, "after": after}
            page = await (await self._connection.execute(sql.read_log_page, asked, binary=True)).fetchall()
            for row in page:
                yield row
            if len(page) < page_rows_max:
                return
            after = page[-1][0]

    def _event(self, row: tuple[Any, ...]) -> Event | None:
        """Verify one row; the Event when it can be read."""
        _, incarnation, group_id, sequence, event_id, kind, revision, signing_hash, chain_hash, raw, accepted_at = row
        self._report.count("log")
        last, previous = self._heads.get(group_id, (0, chain_start(self._organization_id, group_id)))
        if sequence != last + 1:
            self._find("log", row, f"the Group's history goes from sequence {last} to {sequence}")
        try:
            event = msgspec.json.decode(raw, type=Event)
            unsigned = signing_bytes(msgspec.json.decode(raw))
        except (ValueError, msgspec.MsgspecError) as error:
            self._find("chain", row, f"the stored Event cannot be read: {error}")
            self._heads[group_id] = (sequence, chain_hash)
            return None
        computed = SigningHash(hashlib.sha256(unsigned).digest())
        if computed != signing_hash:
            self._find("chain", row, "the stored bytes no longer have the signing hash that was recorded")
        if chain_next(previous, computed) != chain_hash:
            self._find("chain", row, "the chain hash does not follow from the Event before it")
        columns = (incarnation, group_id, event_id, kind, format_timestamp(accepted_at))
        if columns != (
            event.history.incarnation,
            "" if event.group_id is UNSET else event.group_id,
            event.event_id,
            event.kind,
            event.occurred_at,
        ):
            self._find("log", row, "the row's columns do not say what the signed Event says")
        if event.sequence is not UNSET and (event.sequence, event.aggregate_revision) != (sequence, revision):
            self._find("log", row, "the row's sequence or revision is not the signed one")
        if event.history.previous != previous:
            self._find("chain", row, "the signed previous hash is not that of the Event before it")
        self._incarnation(event, group_id, row)
        self._signature(event, unsigned, row)
        self._contract(event, row)
        self._heads[group_id] = (sequence, chain_hash)
        return event

    def _incarnation(self, event: Event, group_id: str, row: tuple[Any, ...]) -> None:
        """A history goes on in a later incarnation only, and says so first (RULE-17); the Organization's own cannot."""
        now, before = event.history.incarnation, self._stands_in.get(group_id)
        self._stands_in[group_id] = now
        if now not in self._ordinals:
            self._find("incarnations", row, f"incarnation {now} was never opened")
        elif before is not None and before != now:
            if self._ordinals[now] < self._ordinals.get(before, 0):
                self._find("incarnations", row, f"incarnation {now} was opened before {before}, which it follows here")
            elif group_id and event.kind != history_resumed:
                self._find("incarnations", row, f"the Group goes on in incarnation {now} without {history_resumed}")

    def _signature(self, event: Event, unsigned: bytes, row: tuple[Any, ...]) -> None:
        """Signed by a key of the accepting service that was valid at the Event's time."""
        self._report.count("signature")
        key = self._keys.get(event.signature.key_id)
        value = base64url_bytes(event.signature.value)
        if event.accepted_by != authority:
            self._find("signature", row, f"{event.accepted_by.id} accepted it, whose Events nobody believes")
        elif key is None or key.principal != event.accepted_by:
            self._find("signature", row, f"key {event.signature.key_id} is not {event.accepted_by.id}'s")
        elif value is None or not verify_ed25519(key.public_key, unsigned, value):
            self._find("signature", row, "the signature does not verify")
        elif not _was_valid(key, event.occurred_at):
            self._find("signature", row, f"key {key.key_id} was not valid at {event.occurred_at}")

    def _contract(self, event: Event, row: tuple[Any, ...]) -> None:
        """Of a kind and version that is read here; an Event of an unknown kind is counted as passed over."""
        try:
            current_payload(event)
        except EventUnread as fault:
            self._find("contracts", row, str(fault))
        else:
            if event_contracts.current(event.kind) is None:
                self._report.pass_over(event.kind)

    def _find(self, check: str, row: tuple[Any, ...], message: str) -> None:
        where = {"group_id": row[2] or None, "sequence": row[3], "position": row[0]}
        self._report.add(Finding(check=check, message=message, **where))


def _was_valid(key: RegisteredKey, moment: str) -> bool:
    """Whether a key covers a moment; a damaged boundary covers none."""
    try:
        return key.covers(instant(moment))
    except ValueError:
        return False
