"""Memberships, heads, and the delivery that is provisioned for a Worker (RULE-25, RULE-23, RULE-32)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts import subjects
from contracts.identifiers import ShardId, token
from contracts.payloads.requests import acknowledge_request, heads_request, memberships_request
from contracts.signature import SigningKey
from services.authority import provision_delivery, serve_memberships
from tests.builders import BuiltEvent, signing_key
from tests.reads_rig import Asker, Authority, Caller, PlantedOrganization, SessionLane, code_of, planted, serving

alpha, beta, gamma, delta = (f"urn:weavehold:group:{name}" for name in ("alpha", "beta", "gamma", "delta"))


async def api(nc: Client, call: str, asked: dict[str, Any] | None = None) -> dict[str, Any]:
    """A call of the broker's API, as raw JSON."""
    answer = await nc.request(f"$JS.API.{call}", json.dumps(asked or {}).encode(), timeout=30)
    return json.loads(answer.data)


class Streams:
    """The shard streams as their relay would fill them."""

    def __init__(self, nc: Client, org: PlantedOrganization) -> None:
        self._nc = nc
        self._org = org
        self.names = {shard: subjects.stream_name(org.id, ShardId(shard), org.incarnation) for shard in range(1, 3)}

    async def create(self, *shards: int) -> None:
        """Empty streams of these shards."""
        for shard in shards:
            config = {
                "name": self.names[shard],
                "subjects": [subjects.shard_events(self._org.id, ShardId(shard))],
                "storage": "file",
                "retention": "limits",
                "allow_direct": True,
            }
            assert "error" not in await api(self._nc, f"STREAM.CREATE.{self.names[shard]}", config)

    async def publish(self, shard: int, *events: BuiltEvent) -> None:
        """Events in the order of the shard's log."""
        for event in events:
            subject = subjects.event(self._org.id, ShardId(shard), event.mark.group_id)
            await self._nc.request(subject, event.raw, timeout=30)

    async def consumers(self, shard: int) -> list[str]:
        """Names of a stream's consumers, sorted."""
        return sorted((await api(self._nc, f"CONSUMER.NAMES.{self.names[shard]}"))["consumers"] or [])

    async def config(self, shard: int, key: SigningKey, epoch: int) -> dict[str, Any]:
        """The configuration of a session's consumer."""
        name = consumer_name(key, epoch)
        return (await api(self._nc, f"CONSUMER.INFO.{self.names[shard]}.{name}"))["config"]

    async def pull(self, shard: int, key: SigningKey, epoch: int, count: int) -> list[bytes]:
        """So many messages of a session's consumer and what else it delivers soon, acknowledged up to the last one."""
        subscription = await self._nc.jetstream().pull_subscribe_bind(
            consumer_name(key, epoch), stream=self.names[shard]
        )
        messages = list[Msg]()
        while len(messages) < count:
            messages += await subscription.fetch(count - len(messages), timeout=30)
        with suppress(TimeoutError):
            messages += await subscription.fetch(100, timeout=0.5)
        await messages[-1].ack_sync()
        await subscription.unsubscribe()
        return [message.data for message in messages]


def consumer_name(key: SigningKey, epoch: int) -> str:
    """The consumer of an Agent's session."""
    return f"worker-{token(key.principal.id)}-{epoch}"


def filters(org: PlantedOrganization, shard: int, *groups: str) -> list[str]:
    """The literal subjects of some Groups."""
    return sorted(subjects.event(org.id, ShardId(shard), group) for group in groups)


@asynccontextmanager
async def working(
    database_url: str, nats_url: str, tmp_path: Path
) -> AsyncIterator[tuple[PlantedOrganization, Authority, Streams]]:
    """An Organization, an authority that serves it, and streams to be made."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        yield org, authority, Streams(authority.nc, org)


async def memberships(
    authority: Authority, org: PlantedOrganization, key: SigningKey, epoch: int = 1
) -> dict[str, Any]:
    """What an Agent is told about its Memberships."""
    return await Asker(authority.nc, org.id, key, epoch).ask(subjects.query(org.id), memberships_request, {})


async def test_a_worker_gets_its_memberships_and_its_delivery(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-25, MWP-WRK-008: one consumer per shard with exactly the subjects of the Groups that the Agent is in."""
    async with working(database_url, nats_url, tmp_path) as (org, authority, streams):
        key, stranger = await org.add_agent("worker", session_epoch=3), await org.add_agent("stranger")
        histories = [
            await org.plant_group(group, 2, shard_id=shard) for group, shard in ((alpha, 1), (beta, 2), (gamma, 1))
        ]
        await org.plant_group(delta, 1, shard_id=2)
        for group in (alpha, beta, gamma):
            await org.plant_membership(group, key.principal)
        await org.plant_membership(delta, stranger.principal)
        await org.plant_membership(gamma, key.principal, state="ended", epoch=2)
        await streams.create(1, 2)
        await streams.publish(1, *histories[0], *histories[2])
        reply = await memberships(authority, org, key, 3)
        again = await memberships(authority, org, key, 3)
        configs = {shard: await streams.config(shard, key, 3) for shard in (1, 2)}
        delivered = await streams.pull(1, key, 3, count=2)
        names = [await streams.consumers(shard) for shard in (1, 2)]
    assert again == reply
    assert (reply["incarnation"], reply["shardCount"]) == (org.incarnation, 2)
    assert reply["next"] is None
    assert reply["memberships"] == [
        {
            "groupId": group,
            "missionId": f"{group}:mission",
            "shardId": shard,
            "role": "worker",
            "state": "active",
            "membershipEpoch": 1,
            "visibilityStartSequence": 0,
        }
        for group, shard in ((alpha, 1), (beta, 2))
    ]
    assert reply["deliveries"] == [
        {"shardId": shard, "stream": streams.names[shard], "consumer": consumer_name(key, 3)} for shard in (1, 2)
    ]
    assert configs[1]["filter_subjects"] == filters(org, 1, alpha)
    assert configs[2]["filter_subjects"] == filters(org, 2, beta)
    assert {config["ack_policy"] for config in configs.values()} == {"all"}
    assert all("durable_name" in config and "deliver_subject" not in config for config in configs.values())
    assert delivered == [event.raw for event in histories[0]]
    assert names == [[consumer_name(key, 3)]] * 2


async def test_filters_follow_memberships(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-25: a new Membership joins the filters, an ended one leaves; the last one takes the consumer along."""
    async with working(database_url, nats_url, tmp_path) as (org, authority, streams):
        key = await org.add_agent("worker")
        first = await org.plant_group(alpha, 3)
        second = await org.plant_group(beta, 1)
        await org.plant_membership(alpha, key.principal)
        await streams.create(1)
        await streams.publish(1, *first, *second)
        await memberships(authority, org, key)
        assert await streams.pull(1, key, 1, count=3) == [event.raw for event in first]
        await org.plant_membership(beta, key.principal)
        await memberships(authority, org, key)
        joined = (await streams.config(1, key, 1))["filter_subjects"]
        later = [*await org.append(alpha, first[-1], 1), *await org.append(beta, second[-1], 1)]
        await streams.publish(1, *later)
        # Nothing is delivered twice; what the new Group had before comes by replay.
        assert await streams.pull(1, key, 1, count=2) == [event.raw for event in later]
        await org.plant_membership(alpha, key.principal, state="ended", epoch=2)
        await memberships(authority, org, key)
        left = (await streams.config(1, key, 1))["filter_subjects"]
        await org.plant_membership(beta, key.principal, state="ended", epoch=2)
        reply = await memberships(authority, org, key)
        names = await streams.consumers(1)
    assert joined == filters(org, 1, alpha, beta)
    assert left == filters(org, 1, beta)
    assert (reply["memberships"], reply["deliveries"]) == ([], [])
    assert names == []


async def test_the_consumer_of_an_older_session_is_deleted(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-25: the next session's provisioning deletes what earlier sessions had, and nobody else's consumers."""
    async with working(database_url, nats_url, tmp_path) as (org, authority, streams):
        key, other = await org.add_agent("worker"), await org.add_agent("other")
        await org.plant_group(alpha, 1)
        await org.plant_group(beta, 1, shard_id=2)
        for member in (key, other):
            await org.plant_membership(alpha, member.principal)
            await org.plant_membership(beta, member.principal)
        await streams.create(1, 2)
        for member in (key, other):
            await memberships(authority, org, member)
        await org.set_session(key, 2)
        # The Agent has left the second shard meanwhile: the old consumer there goes as well.
        await org.plant_membership(beta, key.principal, state="ended", epoch=2)
        await memberships(authority, org, key, 2)
        names = [await streams.consumers(shard) for shard in (1, 2)]
        stale = await memberships(authority, org, key, 1)
    assert names == [sorted([consumer_name(key, 2), consumer_name(other, 1)]), [consumer_name(other, 1)]]
    assert code_of(stale) == "AUTH_STALE_SESSION"


async def test_opening_a_session_ends_the_delivery_of_the_one_before(
    database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """RULE-25: the replaced session's consumer is gone when the new session is told of its acceptance."""
    async with planted(database_url, tmp_path) as org:
        key, lane = await org.add_agent("worker"), SessionLane(org)
        async with serving(database_url, nats_url, org, lane) as authority:
            streams = Streams(authority.nc, org)
            await org.plant_group(alpha, 1)
            await org.plant_membership(alpha, key.principal)
            await streams.create(1)
            await memberships(authority, org, key)
            before = await streams.consumers(1)
            caller = Caller(authority.nc, org.id, key)
            accepted = await caller.ask(caller.proof(await caller.challenge()))
            after = await streams.consumers(1)
    assert accepted["serverAccept"]["sessionEpoch"] == 2
    assert (before, after) == ([consumer_name(key, 1)], [])


async def test_a_late_member_is_delivered_nothing_below_its_visibility(
    database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """RULE-23: delivery begins after every hidden Event, for a new consumer and for one that still stands before it."""
    async with working(database_url, nats_url, tmp_path) as (org, authority, streams):
        late, busy = await org.add_agent("late"), await org.add_agent("busy")
        await streams.create(1)
        own = await org.plant_group(beta, 2)
        hidden = await org.plant_group(alpha, 5)
        await org.plant_membership(beta, busy.principal)
        await streams.publish(1, *own)
        await memberships(authority, org, busy)
        for member in (late, busy):
            await org.plant_membership(alpha, member.principal, visibility=5)
        # The stream has not come as far as the hidden Events: no consumer could begin after them yet.
        behind = [await memberships(authority, org, member) for member in (late, busy)]
        await streams.publish(1, *hidden)
        ready = [await memberships(authority, org, member) for member in (late, busy)]
        visible = await org.append(alpha, hidden[-1], 2)
        await streams.publish(1, *visible)
        delivered = [await streams.pull(1, member, 1, count=2) for member in (late, busy)]
    assert [code_of(reply) for reply in behind] == ["BACKPRESSURE"] * 2
    assert all(reply["error"]["retryable"] and reply["error"]["retryAfterMs"] > 0 for reply in behind)
    assert [code_of(reply) for reply in ready] == [None, None]
    assert delivered == [[event.raw for event in visible]] * 2


async def test_delivery_begins_after_what_was_acknowledged(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-25, MWP-WRK-030: a new session is not sent again what the Agent has acknowledged in all of its Groups."""
    async with working(database_url, nats_url, tmp_path) as (org, authority, streams):
        key = await org.add_agent("worker")
        first, second = await org.plant_group(alpha, 6), await org.plant_group(beta, 6)
        for group in (alpha, beta):
            await org.plant_membership(group, key.principal)
        await streams.create(1)
        await streams.publish(1, *first, *second)
        for event in (first[5], second[3]):
            place = {
                "groupId": event.mark.group_id,
                "incarnation": org.incarnation,
                "sequence": event.mark.sequence,
                "chainHash": event.mark.chain_hash.hex(),
            }
            asker = Asker(authority.nc, org.id, key)
            assert "acknowledged" in await asker.ask(subjects.acknowledgement(org.id), acknowledge_request, place)
        await memberships(authority, org, key)
        delivered = await streams.pull(1, key, 1, count=6)
    # Positions 1-6 and 7-12: the lower of the two acknowledged places is position 6.
    assert delivered == [event.raw for event in second]


async def test_without_its_stream_a_worker_is_told_to_wait(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-25, ERR-1: a stream that is not there yet is a retryable answer with a time to wait, then it works."""
    async with working(database_url, nats_url, tmp_path) as (org, authority, streams):
        key = await org.add_agent("worker")
        await org.plant_group(alpha, 1)
        await org.plant_membership(alpha, key.principal)
        early = await memberships(authority, org, key)
        owner = org.organization.keys.mission_owner
        await org.plant_membership(alpha, owner.principal)
        person = await memberships(authority, org, owner)
        await streams.create(1)
        ready = await memberships(authority, org, key)
    assert (code_of(early), early["error"]["retryable"]) == ("BACKPRESSURE", True)
    assert early["error"]["retryAfterMs"] > 0
    # People pull nothing, so nothing is provisioned for them.
    assert (len(person["memberships"]), person["deliveries"]) == (1, [])
    assert len(ready["deliveries"]) == 1


async def test_provisioning_at_once_from_many_processes_agrees(
    database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """RULE-25: requests answered by two processes at the same time leave one consumer with the right filters."""
    async with planted(database_url, tmp_path) as org:
        key = await org.add_agent("worker")
        for group in (alpha, beta, gamma):
            await org.plant_group(group, 1)
        await org.plant_membership(alpha, key.principal)
        async with serving(database_url, nats_url, org) as one, serving(database_url, nats_url, org) as two:
            streams = Streams(one.nc, org)
            await streams.create(1)
            asking = [asyncio.create_task(memberships(each, org, key)) for each in (one, two) * 8]
            for group in (beta, gamma):
                await org.plant_membership(group, key.principal)
            replies = await asyncio.gather(*asking)
            await memberships(one, org, key)
            names, config = await streams.consumers(1), await streams.config(1, key, 1)
    assert {code_of(reply) for reply in replies} <= {None, "BACKPRESSURE"}
    assert names == [consumer_name(key, 1)]
    assert config["filter_subjects"] == filters(org, 1, alpha, beta, gamma)


async def test_a_worker_in_too_many_groups_is_told(
    database_url: str, nats_url: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """RULE-25: one consumer filters by a bounded number of Groups; beyond it the Agent is refused by name."""
    monkeypatch.setattr(provision_delivery, "delivered_groups_max", 2)
    async with working(database_url, nats_url, tmp_path) as (org, authority, streams):
        key = await org.add_agent("worker")
        await streams.create(1)
        for group in (alpha, beta, gamma):
            await org.plant_group(group, 1)
            await org.plant_membership(group, key.principal)
        refused = await memberships(authority, org, key)
        await org.plant_membership(gamma, key.principal, state="ended", epoch=2)
        served = await memberships(authority, org, key)
    assert (code_of(refused), refused["error"]["retryable"]) == ("RATE_LIMITED", False)
    assert len(served["deliveries"]) == 1


async def test_memberships_come_in_pages(database_url: str, nats_url: str, tmp_path: Path, monkeypatch: Any) -> None:
    """RULE-30: a Principal in many Groups follows `next`; ended Memberships are left out."""
    monkeypatch.setattr(serve_memberships, "memberships_page_max", 3)
    async with working(database_url, nats_url, tmp_path) as (org, authority, _):
        owner = org.organization.keys.mission_owner
        groups = [f"urn:weavehold:group:{number:02}" for number in range(10)]
        for number, group in enumerate(groups):
            await org.plant_group(group, 1)
            await org.plant_membership(group, owner.principal, state="ended" if 2 < number < 6 else "active")
        asker, found, asked = Asker(authority.nc, org.id, owner), list[str](), dict[str, str]()
        pages = 0
        while True:
            reply = await asker.ask(subjects.query(org.id), memberships_request, asked)
            found += [membership["groupId"] for membership in reply["memberships"]]
            pages += 1
            if reply["next"] is None:
                break
            asked = {"afterGroupId": reply["next"]}
    assert found == [*groups[:3], *groups[6:]]
    assert pages == 4


async def test_heads_are_told_of_visible_groups_only(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-30, RULE-21: heads in the order asked; invisible and unknown Groups are left out alike."""
    async with working(database_url, nats_url, tmp_path) as (org, authority, _):
        key = await org.add_agent("worker")
        histories = {group: await org.plant_group(group, count) for group, count in ((alpha, 2), (beta, 5), (gamma, 1))}
        for group in (alpha, beta):
            await org.plant_membership(group, key.principal, visibility=1 if group == beta else 0)
        asker, asked = Asker(authority.nc, org.id, key), {"groupIds": [beta, delta, gamma, alpha]}
        reply = await asker.ask(subjects.query(org.id), heads_request, asked)
        operator = Asker(authority.nc, org.id, org.organization.keys.operator)
        all_heads = await operator.ask(subjects.query(org.id), heads_request, asked)
    head = {
        group: {
            "incarnation": org.incarnation,
            "groupId": group,
            "sequence": len(built),
            "chainHash": built[-1].mark.chain_hash.hex(),
        }
        for group, built in histories.items()
    }
    assert reply == {"heads": [head[beta], head[alpha]]}
    assert all_heads == {"heads": [head[beta], head[gamma], head[alpha]]}


async def test_memberships_of_one_organization_alone(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-32: the same Agent and Group in two Organizations: Memberships, heads and consumers stay apart."""
    async with planted(database_url, tmp_path, "one") as one, planted(database_url, tmp_path, "two") as two:
        key = signing_key("worker")
        for org, count in ((one, 1), (two, 4)):
            await org.add_agent("worker")
            await org.plant_group(alpha, count)
            await org.plant_membership(alpha, key.principal)
        await two.plant_group(beta, 1)
        await two.plant_membership(beta, key.principal)
        async with serving(database_url, nats_url, one) as authority:
            streams = {org.id: Streams(authority.nc, org) for org in (one, two)}
            for each in streams.values():
                await each.create(1)
            reply = await memberships(authority, one, key)
            asker = Asker(authority.nc, one.id, key)
            heads = await asker.ask(subjects.query(one.id), heads_request, {"groupIds": [alpha, beta]})
            names = {name: await each.consumers(1) for name, each in streams.items()}
    assert [membership["groupId"] for membership in reply["memberships"]] == [alpha]
    assert [(head["groupId"], head["sequence"]) for head in heads["heads"]] == [(alpha, 1)]
    assert names == {one.id: [consumer_name(key, 1)], two.id: []}
