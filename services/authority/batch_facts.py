"""What one accepting transaction reads: locks first, then the clock, then everything the batch will be judged by."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET, Struct, field
from psycopg import AsyncConnection, AsyncCursor

from contracts.chain import ChainHash
from contracts.command import history_resume, key_retire, key_revoke
from contracts.documents.first_admission_record import FirstAdmissionRecord
from contracts.group_state import GroupState, decode_entity
from contracts.identifiers import GroupSequence, ShardId, ShardPosition, organization_shard
from services.authority.admission_book import admission_record
from services.authority.admitted import Admitted
from services.authority.decide import agents_consulted, changes_keys, identifiers_claimed, keys_consulted
from services.authority.decide_history import deciders
from services.authority.group_cache import GroupCache
from services.authority.history_standing import ServerLife, server_life
from services.authority.incarnation import Incarnation, incarnation_of
from services.authority.key_book import KnownKey, registered_key
from services.process.arrays import BytesColumn, SmallintColumn, TextColumn
from services.process.statements import load

sql = load(__package__)


class Routed(Struct, frozen=True):
    """An admitted Command with the shard that decides it."""

    admitted: Admitted
    shard_id: ShardId


key_ending_kinds: Final = frozenset({key_retire, key_revoke})


def ends_key(routed: Routed) -> bool:
    """Whether a Command may end a key: it comes first in its batch, so that nothing shares its moment (RULE-06)."""
    command = routed.admitted.command
    return routed.shard_id == organization_shard and command.kind in key_ending_kinds and changes_keys(command)


def resumes_history(routed: Routed) -> bool:
    """Whether a Command may open a new incarnation: it is judged alone, with every shard locked (RULE-16)."""
    command = routed.admitted.command
    return routed.shard_id == organization_shard and command.kind == history_resume and command.actor in deciders


def begins_batch(routed: Routed) -> bool:
    """Whether nothing may stand before a Command in its batch."""
    return ends_key(routed) or resumes_history(routed)


class ShardFence(Struct, frozen=True):
    """Who may commit to a shard, and where its log ends (0 and None for an empty one)."""

    holder: str | None
    epoch: int | None
    position: ShardPosition
    accepted_at: datetime | None


class AgentRow(Struct, frozen=True):
    """An Agent as the Organization shard last wrote it; `card` is canonical JSON."""

    session_epoch: int
    session_event_id: str | None
    card_version: int
    card: bytes


class BatchNeeds(Struct, frozen=True):
    """The names that a batch touches, each sorted: one order of locking everywhere."""

    shard_ids: list[int]
    group_ids: list[str]
    key_ids: list[str]
    agent_ids: list[str] = field(default_factory=list)
    actions: list[tuple[str, str]] = field(default_factory=list)
    identifiers: list[str] = field(default_factory=list)
    signing_hashes: list[bytes] = field(default_factory=list)
    public_keys: list[bytes] = field(default_factory=list)
    changes_keys: bool = False
    ends_keys: bool = False
    resumes_history: bool = False


class BatchFacts(Struct):
    """Everything read under the locks. `states` are owned by the transaction: it changes them as it decides.

    `settled` is an acceptance time that keys must be judged after: that of the latest change of keys or a later one;
    in a batch that ends keys, that of whatever was accepted last, in any shard. None when there is none.
    `head_incarnations` says in which incarnation the last Event of a Group stands, `life` of which server all this is.
    """

    now: datetime
    life: ServerLife
    settled: datetime | None
    ends_keys: bool
    incarnation: Incarnation
    fences: dict[ShardId, ShardFence]
    agents: dict[str, AgentRow]
    receipts: dict[tuple[str, str], tuple[bytes, bytes]]
    taken: set[str]
    admissions: list[FirstAdmissionRecord]
    keys: list[KnownKey]
    states: dict[str, GroupState]
    organization_head: tuple[GroupSequence, ChainHash] | None
    group_shards: dict[str, ShardId]
    head_incarnations: dict[str, str]


def needs_of(batch: Sequence[Routed], signing_key_id: str) -> BatchNeeds:
    """What a batch must read. `signing_key_id` names the key that would sign its Events."""
    commands = [routed.admitted.command for routed in batch]
    facts = [fact for routed in batch for fact in routed.admitted.facts]
    named_keys = [named for command in commands for named in keys_consulted(command)]
    return BatchNeeds(
        shard_ids=sorted({routed.shard_id for routed in batch}),
        group_ids=sorted({c.group_id for c in commands if c.group_id is not UNSET}),
        agent_ids=sorted({agent for command in commands for agent in agents_consulted(command)}),
        actions=sorted({(c.actor.id, c.action_id) for c in commands}),
        identifiers=sorted({name for c in commands for name, _ in identifiers_claimed(c)}),
        signing_hashes=sorted({fact.signing_hash for fact in facts}),
        key_ids=sorted({fact.key_id for fact in facts} | {key_id for key_id, _ in named_keys} | {signing_key_id}),
        public_keys=sorted({public_key for _, public_key in named_keys if public_key is not None}),
        changes_keys=any(r.shard_id == organization_shard and changes_keys(r.admitted.command) for r in batch),
        ends_keys=any(ends_key(routed) for routed in batch),
        resumes_history=any(resumes_history(routed) for routed in batch),
    )


async def read_facts(
    connection: AsyncConnection[Any], organization_id: str, needs: BatchNeeds, cache: GroupCache
) -> BatchFacts:
    """Lock and read for one batch, in one round trip; a second one loads the Groups that the cache does not hold.

    The connection is left inside its transaction. Raises psycopg errors as they come: the caller classifies them.
    """
    asked: dict[str, Any] = {"organization_id": organization_id}
    exclusive = organization_shard in needs.shard_ids
    async with connection.pipeline():
        await connection.execute(sql.lock_keys_exclusive if needs.changes_keys else sql.lock_keys_shared, asked)
        lock_shards = sql.lock_all_shards if needs.resumes_history else sql.lock_shards
        await connection.execute(lock_shards, asked | {"shard_ids": SmallintColumn(needs.shard_ids)})
        clock = await connection.execute(sql.read_clock)
        fences = await connection.execute(sql.read_shard_fences, asked | {"shard_ids": SmallintColumn(needs.shard_ids)})
        settled = await connection.execute(sql.read_last_moment if needs.ends_keys else sql.read_registry_moment, asked)
        incarnation = await connection.execute(sql.read_founded_incarnation, asked)
        lock_agents = sql.lock_agents_exclusive if exclusive else sql.lock_agents_shared
        agents = await _unless_empty(connection, lock_agents, asked, agent_ids=TextColumn(needs.agent_ids))
        heads = await _unless_empty(
            connection,
            sql.read_group_heads,
            asked,
            group_ids=TextColumn([*needs.group_ids, *([""] if exclusive else [])]),
        )
        receipts = await connection.execute(
            sql.read_receipts,
            asked
            | {
                "actor_ids": TextColumn(actor for actor, _ in needs.actions),
                "action_ids": TextColumn(action for _, action in needs.actions),
            },
        )
        taken = await _unless_empty(
            connection, sql.read_taken_identifiers, asked, identifiers=TextColumn(needs.identifiers)
        )
        admissions = await connection.execute(
            sql.read_admissions, asked | {"signing_hashes": BytesColumn(needs.signing_hashes)}
        )
        keys = await connection.execute(
            sql.read_keys, asked | {"key_ids": TextColumn(needs.key_ids), "public_keys": BytesColumn(needs.public_keys)}
        )
    head_rows = await _rows(heads)
    found_heads = {g: (GroupSequence(s), ChainHash(h)) for g, s, h, *_ in head_rows}
    organization_head = found_heads.pop("", None)
    states, missing = _from_cache(organization_id, needs.group_ids, found_heads, cache)
    if missing:
        states |= await _load_states(connection, organization_id, missing, found_heads)
    [(now,)] = await clock.fetchall()
    [founded] = await incarnation.fetchall()
    return BatchFacts(
        now=now,
        life=server_life(founded[4:]),
        settled=next((moment for (moment,) in await settled.fetchall()), None),
        ends_keys=needs.ends_keys,
        incarnation=incarnation_of(founded),
        fences={ShardId(s): ShardFence(h, e, ShardPosition(p), a) for s, h, e, p, a in await fences.fetchall()},
        agents={row[0]: AgentRow(*row[1:]) for row in await _rows(agents)},
        receipts={(actor, action): (h, r) for actor, action, h, r in await receipts.fetchall()},
        taken={name for (name,) in await _rows(taken)},
        admissions=[admission_record(organization_id, row) for row in await admissions.fetchall()],
        keys=[KnownKey(registered_key(row[:-1]), row[-1]) for row in await keys.fetchall()],
        states=states,
        organization_head=organization_head,
        group_shards={group_id: ShardId(shard_id) for group_id, _, _, shard_id, _ in head_rows},
        head_incarnations={group_id: incarnation for group_id, *_, incarnation in head_rows},
    )


async def _unless_empty(
    connection: AsyncConnection[Any], statement: Any, asked: dict[str, Any], **names: list[Any]
) -> AsyncCursor[Any] | None:
    """A statement is sent only when it has something to ask."""
    if not any(names.values()):
        return None
    return await connection.execute(statement, asked | names)


async def _rows(cursor: AsyncCursor[Any] | None) -> list[Any]:
    return [] if cursor is None else await cursor.fetchall()


def _from_cache(
    organization_id: str,
    group_ids: Iterable[str],
    heads: Mapping[str, tuple[GroupSequence, ChainHash]],
    cache: GroupCache,
) -> tuple[dict[str, GroupState], list[str]]:
    """States that stand exactly at their heads, empty ones for Groups without Events, and the names to load."""
    states: dict[str, GroupState] = {}
    missing: list[str] = []
    for group_id in group_ids:
        if group_id not in heads:
            states[group_id] = GroupState.empty(organization_id, group_id)
        elif state := cache.valid(group_id, *heads[group_id]):
            states[group_id] = state
        else:
            missing.append(group_id)
    return states, missing


async def _load_states(
    connection: AsyncConnection[Any],
    organization_id: str,
    group_ids: list[str],
    heads: Mapping[str, tuple[GroupSequence, ChainHash]],
) -> dict[str, GroupState]:
    """States from their entity rows; the shard lock holds them still since the heads were read."""
    states = {g: GroupState.empty(organization_id, g) for g in group_ids}
    cursor = await connection.execute(
        sql.load_entities, {"organization_id": organization_id, "group_ids": TextColumn(group_ids)}, binary=True
    )
    async for group_id, kind, entity_id, revision, body in cursor:
        states[group_id].restore(kind, entity_id, revision, decode_entity(kind, body))
    for group_id, state in states.items():
        state.move_to(*heads[group_id])
    return states
