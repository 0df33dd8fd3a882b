"""An authority without its broker: admission, one lane's connection and the accepting transaction, step by step."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from psycopg import AsyncConnection

from contracts.documents.common import Actor, ActorType
from contracts.identifiers import ShardId
from contracts.receipt import Receipt
from contracts.rejection import Rejection
from contracts.signature import SigningKey
from ops.bench.workload import create_mission, group_name, register_agent, signed_command
from ops.init import Organization
from ops.verify.finding import Report
from ops.verify.verify_incarnations import verify_incarnations
from ops.verify.verify_keys import verify_keys
from ops.verify.verify_log import LogVerifier
from ops.verify.verify_receipts import verify_receipts
from ops.verify.verify_state import verify_state
from services.authority.accept_transition import Committed, accept_transition
from services.authority.admit import admit_one
from services.authority.admitted import Accepted, Admitted, Answer
from services.authority.batch_facts import Routed
from services.authority.decide_mission import main_conversation_id
from services.authority.group_cache import GroupCache
from services.authority.judge_batch import Office
from services.authority.key_cache import SynchronousKeyResolver
from services.authority.lane import Lane
from services.authority.route import ShardFinder
from services.authority.shard_leases import ShardLeases
from services.process.database import Pool, connect, open_pool
from services.process.unique import uuid7_urn

coordinator = SigningKey.generate(Actor(type=ActorType.AGENT, id="urn:weavehold:agent:coordinator"))

moved_clock = """CREATE OR REPLACE FUNCTION weavehold_clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT clock_timestamp() + interval '{}' $$"""


class InProcessAuthority:
    """One authority process's heart. `held` is what it believes to hold; `connection` is its lane's."""

    def __init__(self, url: str, organization: Organization, pool: Pool, name: str) -> None:
        self.url = url
        self.organization = organization
        self.pool = pool
        self.office = Office(
            organization_id=organization.organization_id,
            holder=f"{name}-1",
            key=organization.keys.authority,
            new_id=uuid7_urn,
        )
        self.leases = ShardLeases(pool, organization.organization_id, self.office.holder, organization.shard_count)
        self.finder = ShardFinder(pool, organization.organization_id, organization.shard_count)
        self.keys = SynchronousKeyResolver(url, organization.organization_id)
        self.cache = GroupCache()
        self.held: dict[ShardId, int] = {}
        self.connection: AsyncConnection[Any] | None = None

    async def take_shards(self) -> None:
        """Renew leases as the process would."""
        self.held = (await self.leases.renew()).held

    async def seize(self) -> None:
        """Take every shard at once, whoever holds it: what a series of failovers would end in."""
        await run_sql(
            self.url,
            f"UPDATE shard_lease SET holder = '{self.office.holder}', epoch = epoch + 1 "
            f"WHERE organization_id = '{self.office.organization_id}'",
        )
        self.held = {
            ShardId(shard): epoch
            for shard, epoch in await rows(
                self.url,
                "SELECT shard_id, epoch FROM shard_lease WHERE organization_id = %s",
                self.office.organization_id,
            )
        }

    async def connected(self) -> AsyncConnection[Any]:
        """A lane's connection."""
        return await connect(self.url, name="test-lane", autocommit=False)

    async def route(self, raws: Iterable[bytes]) -> list[Routed]:
        """Admit and route Commands that must pass admission."""
        routed = []
        for raw in raws:
            admitted = admit_one(raw, self.keys)
            assert isinstance(admitted, Admitted), admitted
            routed.append(Routed(admitted, await self.finder.shard_of(admitted.command)))
        return routed

    async def commit(self, *raws: bytes) -> Committed:
        """One batch through the transaction."""
        if self.connection is None or self.connection.closed:
            self.connection = await self.connected()
        return await accept_transition(self.connection, await self.route(raws), self.office, self.held, self.cache)

    async def answer(self, raw: bytes) -> Answer:
        """The answer to one Command, alone in its batch."""
        return (await self.commit(raw)).answers[0]

    async def receipt(self, raw: bytes) -> Receipt:
        """The Receipt of a Command that must be accepted."""
        return receipt_of(await self.answer(raw))

    @asynccontextmanager
    async def lane(self, url: str | None = None) -> AsyncIterator[Lane]:
        """A running lane over this authority's shards, connected to `url` (a proxy) or directly."""

        async def ignore(_committed: Committed) -> None:
            return

        lane = Lane(
            lambda: connect(url or self.url, name="test-lane", autocommit=False),
            self.office,
            self.held,
            ignore,
            lambda shards: [self.held.pop(shard, None) for shard in shards],
        )
        task = asyncio.create_task(lane.run(lambda: None))
        try:
            yield lane
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def through(self, lane: Lane, raw: bytes) -> Answer:
        """One Command through a lane."""
        [routed] = await self.route([raw])
        return await lane.submit(routed.admitted, routed.shard_id)

    async def close(self) -> None:
        """Give everything back."""
        self.keys.close()
        if self.connection is not None:
            await self.connection.close()


@asynccontextmanager
async def authority_on(url: str, organization: Organization, name: str = "one") -> AsyncIterator[InProcessAuthority]:
    """An authority that holds its shards."""
    pool = await open_pool(url, name=f"test-{name}", maximum=4)
    authority = InProcessAuthority(url, organization, pool, name)
    try:
        await authority.take_shards()
        yield authority
    finally:
        await authority.close()
        await pool.close()


def receipt_of(answer: Answer) -> Receipt:
    """The Receipt in an answer that must be one."""
    assert isinstance(answer, Accepted), answer
    return msgspec.json.decode(answer.receipt, type=Receipt)


def refusal_of(answer: Answer) -> Rejection:
    """The Rejection in an answer that must be one."""
    assert isinstance(answer, Rejection), answer
    return answer


def post(organization: Organization, number: int = 0, text: Any = "Hello", **members: Any) -> bytes:
    """`message.post` by the owner to Group `number`; `content` replaces the text."""
    content = members.pop("content", [{"type": "text", "text": text}])
    payload = {
        "messageId": members.pop("message_id", None) or uuid7_urn(),
        "conversationId": main_conversation_id(group_name(number)),
        "content": content,
    }
    owner = organization.keys.mission_owner
    return signed_command(owner, "message.post", group_name(number), payload, 1, **members)


def creation(organization: Organization, number: int = 0) -> bytes:
    """`mission.create` of Group `number` by the owner."""
    return create_mission(organization.keys.mission_owner, number, coordinator.principal.id)


async def with_groups(authority: InProcessAuthority, *numbers: int) -> None:
    """Register the Coordinator and create Groups."""
    keys = authority.organization.keys
    card = register_agent(keys.operator, keys.registry, coordinator, authority.organization.organization_id)
    await authority.receipt(card)
    for number in numbers:
        await authority.receipt(creation(authority.organization, number))


async def verified(url: str, organization: Organization) -> Report:
    """Log, receipts, state and keys verified; the report has no findings."""
    report = Report()
    connection = await connect(url, name="verify")
    try:
        log = LogVerifier(connection, organization.organization_id, report)
        await log.verify()
        await verify_incarnations(connection, organization.organization_id, log.ends, report)
        await verify_receipts(connection, organization.organization_id, report)
        await verify_state(connection, organization.organization_id, report)
        await verify_keys(connection, organization.organization_id, report)
    finally:
        await connection.close()
    assert report.ok, report.findings
    return report


async def rows(url: str, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """What the database holds."""
    connection = await connect(url, name="look")
    try:
        return await (await connection.execute(statement, parameters)).fetchall()
    finally:
        await connection.close()


async def run_sql(url: str, *statements: str) -> None:
    """Force a situation in the database."""
    connection = await connect(url, name="force")
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
