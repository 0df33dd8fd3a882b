"""THE transaction: Commands in, committed Events, state, identifiers and Receipts out, together or not at all.

Authoritative here: the log under the shard's row lock. Sequence, position and chain hash are assigned while that
lock is held, so commit order equals order in the log; nothing else ever assigns one (MWP-EVT-005, ACC-2).

What each crash point leaves behind:
- before the commit: nothing; the same Commands may be sent again;
- at the commit, acknowledgement lost: all or nothing; the batch runs again and Receipts tell which;
- after the commit, before the replies: the Receipts answer the senders' retries (MWP-EVT-003), and a relay finds
  the Events in the log.

Locks, in this order everywhere (RULE-03): the Organization's keys (shared; exclusively to change one) → shard rows →
lease epochs read → Agent rows sorted → identifiers sorted → Receipts sorted.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.errors import UniqueViolation

from contracts.group_state import EntityKind
from contracts.identifiers import ShardId
from contracts.signature import SigningKey
from services.authority.admitted import Answer, AuthenticationFailure
from services.authority.append_events import AppendedEvent
from services.authority.batch_facts import BatchFacts, BatchNeeds, Routed, needs_of, read_facts
from services.authority.group_cache import GroupCache
from services.authority.judge_batch import BatchJudge, Office
from services.authority.write_batch import write_batch


class ShardsLost(Exception):
    """Another process holds some shard of the batch under a higher lease epoch; nothing was written."""

    def __init__(self, shard_ids: frozenset[ShardId]) -> None:
        """`shard_ids` are those that this process must stop serving."""
        super().__init__(f"the lease of shards {sorted(shard_ids)} passed to another process")
        self.shard_ids = shard_ids


class RaceLost(Exception):
    """Another shard committed the same Action ID or identifier meanwhile; the batch must be judged again."""


class Committed(Struct, frozen=True):
    """Answers in the order of the batch, the Events that the transaction appended, and failures to audit.

    `changed_members` are the Principals whose Memberships changed; `keys_changed` says that the key registry did.
    """

    answers: tuple[Answer, ...]
    events: tuple[AppendedEvent, ...]
    failures: tuple[AuthenticationFailure, ...]
    changed_members: frozenset[str]
    keys_changed: bool


async def accept_transition(
    connection: AsyncConnection[Any],
    batch: Sequence[Routed],
    office: Office,
    held: Mapping[ShardId, int],
    cache: GroupCache,
) -> Committed:
    """Judge and commit one batch. `held` maps the shards of this process to their lease epochs.

    Raises ShardsLost, RaceLost, SigningKeyRefused, HistoryDoubted, or psycopg errors as they come; after any of them
    nothing of the batch is known to be committed, the cache holds nothing of its Groups, and running the same batch
    again is safe.
    """
    key = office.key
    return await _transact(
        connection,
        needs_of(batch, key.key_id),
        (office, key),
        held,
        cache,
        judge_all=lambda judge: tuple(judge.judge(routed) for routed in batch),
    )


async def resume_groups(
    connection: AsyncConnection[Any],
    shard_id: ShardId,
    group_ids: Sequence[str],
    office: Office,
    held: Mapping[ShardId, int],
) -> Committed:
    """Let Groups of a shard go on in the current incarnation that have not yet (RULE-17); raises the same."""
    key = office.key

    def resume(judge: BatchJudge) -> tuple[Answer, ...]:
        office.history.require_sound()
        for group_id in needs.group_ids:
            judge.resume(shard_id, group_id)
        return ()

    needs = BatchNeeds(shard_ids=[shard_id], group_ids=sorted(group_ids), key_ids=[key.key_id])
    return await _transact(connection, needs, (office, key), held, GroupCache(), judge_all=resume)


async def _transact(
    connection: AsyncConnection[Any],
    needs: BatchNeeds,
    accepting: tuple[Office, SigningKey],
    held: Mapping[ShardId, int],
    cache: GroupCache,
    *,
    judge_all: Callable[[BatchJudge], tuple[Answer, ...]],
) -> Committed:
    """Lock and read, judge, write and commit: the one transaction, whatever is judged in it."""
    office, key = accepting
    try:
        facts = await read_facts(connection, office.organization_id, needs, cache)
        _require_shards(facts, office.holder, held)
        require = office.history.require_judged if needs.resumes_history else office.history.require_examined
        require(facts.life)
        judge = BatchJudge(office, key, facts)
        answers = judge_all(judge)
        if judge.outcome.events:
            await write_batch(connection, office, judge.outcome)
        else:
            await connection.rollback()
    except BaseException as error:
        cache.drop(needs.group_ids)
        await _abandon(connection, error)
        if isinstance(error, UniqueViolation):
            raise RaceLost(str(error)) from error
        raise
    cache.keep(state for state in facts.states.values() if state.sequence > 0)
    outcome = judge.outcome
    members = frozenset(key.entity_id for _, key in outcome.changes if key.kind is EntityKind.MEMBERSHIP)
    keys_changed = bool(outcome.organization.keys or outcome.organization.key_ends)
    return Committed(answers, tuple(outcome.events), tuple(outcome.failures), members, keys_changed)


def _require_shards(facts: BatchFacts, holder: str, held: Mapping[ShardId, int]) -> None:
    lost = {s for s, fence in facts.fences.items() if (fence.holder, fence.epoch) != (holder, held.get(s))}
    if lost:
        raise ShardsLost(frozenset(lost))


async def _abandon(connection: AsyncConnection[Any], error: BaseException) -> None:
    """Roll back if the connection still can; a broken one is the lane's to replace.

    Whoever cancels waits no longer, so a cancelled transition says no more to the server: closing rolls it back.
    """
    if isinstance(error, asyncio.CancelledError):
        await connection.close()
    elif not connection.closed and not connection.broken:
        await connection.rollback()
