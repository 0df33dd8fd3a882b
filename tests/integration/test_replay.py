"""Replay: history in pages, byte for byte, to those whose Membership shows it (RULE-30, RULE-23, RULE-32)."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts import subjects
from contracts.bounds import replay_page_bytes_max, replay_page_events_max
from contracts.chain import ChainHash, SigningHash, chain_next, chain_start
from contracts.payloads.requests import GroupPage, ShardPage, replay_request
from tests.builders import BuiltEvent, principal, signing_key
from tests.reads_rig import Asker, PlantedOrganization, code_of, planted, serving

group = "urn:weavehold:group:alpha"
broker_payload_max = 1024 * 1024


async def every_page(asker: Asker, subject: str, payload: dict[str, Any], after: str = "after") -> list[GroupPage]:
    """All pages by following `next`; each must fit into one broker message."""
    pages: list[GroupPage] = []
    following: int | None = payload[after]
    while following is not None:
        raw = await asker.raw(subject, replay_request, payload | {after: following})
        assert len(raw) <= broker_payload_max
        pages.append(msgspec.json.decode(raw, type=GroupPage))
        following = pages[-1].next
        assert len(pages) < 1_000
    return pages


def assert_same_bytes(pages: list[GroupPage], built: list[BuiltEvent]) -> None:
    """The pages hold exactly these Events as they were signed, and the chain hashes after them."""
    events = [event for page in pages for event in page.events]
    assert [bytes(event.event) for event in events] == [item.raw for item in built]
    assert [event.chain_hash for event in events] == [item.mark.chain_hash.hex() for item in built]


async def test_five_thousand_events_come_back_byte_for_byte(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-30, ACC-5: a Group of any length is read by following `next`; no byte of an Event is written again."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("reader")
        built = await org.plant_group(group, 5_000)
        await org.plant_membership(group, key.principal)
        asker = Asker(authority.nc, org.id, key)
        pages = await every_page(asker, subjects.replay(org.id), {"groupId": group, "after": 0})
    assert_same_bytes(pages, built)
    assert all(len(page.events) <= replay_page_events_max for page in pages)
    assert all(sum(len(bytes(e.event)) for e in page.events) <= replay_page_bytes_max for page in pages)
    assert all(page.head.sequence == 5_000 for page in pages)
    assert pages[-1].next is None
    chain = chain_start(org.id, group)
    for item in built:
        chain = chain_next(chain, SigningHash(item.signing_hash))
    assert pages[-1].head.chain_hash == ChainHash(chain).hex()


async def test_a_page_keeps_to_bytes_and_count(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-30: pages are bounded by bytes and by count; one Event above the byte bound still travels, alone."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("reader")
        small = await org.plant_group(group, 3, size=100)
        large = await org.append(group, small[-1], 4, size=200_000)
        tail = await org.append(group, large[-1], 20, size=100)
        built = [*small, *large, *tail]
        await org.plant_membership(group, key.principal)
        asker = Asker(authority.nc, org.id, key)
        subject = subjects.replay(org.id)
        pages = await every_page(asker, subject, {"groupId": group, "after": 0})
        narrow = await every_page(asker, subject, {"groupId": group, "after": 0, "limitBytes": 2_500})
        few = await every_page(asker, subject, {"groupId": group, "after": 0, "limitEvents": 5})
        beyond = await asker.ask(
            subject, replay_request, {"groupId": group, "after": 0, "limitEvents": replay_page_events_max + 1}
        )
    for read in (pages, narrow, few):
        assert_same_bytes(read, built)
    assert [len(page.events) for page in pages] == [5, 22]
    sizes = [[len(bytes(event.event)) for event in page.events] for page in narrow]
    assert all(sum(page) <= 2_500 or len(page) == 1 for page in sizes)
    assert [page for page in sizes if page[0] > 200_000] == [[len(item.raw)] for item in large]
    assert [len(page.events) for page in few] == [5, 5, 5, 5, 5, 2]
    assert code_of(beyond) == "SCHEMA_VALIDATION_FAILED"


async def test_the_head_is_named_when_nothing_is_left(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-30: asking at or beyond the head gives no Event, no `next`, and the head."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("reader")
        built = await org.plant_group(group, 3)
        await org.plant_membership(group, key.principal)
        asker = Asker(authority.nc, org.id, key)
        replies = [
            await asker.ask(subjects.replay(org.id), replay_request, {"groupId": group, "after": after})
            for after in (3, 99)
        ]
    head = {
        "incarnation": org.incarnation,
        "groupId": group,
        "sequence": 3,
        "chainHash": built[-1].mark.chain_hash.hex(),
    }
    assert replies == [{"events": [], "next": None, "head": head}] * 2


@pytest.mark.parametrize("standing", ["stranger", "ended", "unknown group", "namesake of another type"])
async def test_an_invisible_group_does_not_exist(
    database_url: str, nats_url: str, tmp_path: Path, standing: str
) -> None:
    """RULE-30, ERR-1: strangers, ended members and askers for unknown Groups get the same GROUP_NOT_FOUND."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("reader")
        if standing != "unknown group":
            await org.plant_group(group, 3)
            await org.plant_membership(group, principal("other"))
        if standing == "ended":
            await org.plant_membership(group, key.principal, state="ended")
        if standing == "namesake of another type":
            member = principal("reader", "human")
            await org.plant_membership(group, msgspec.structs.replace(member, id=key.principal.id))
        asker = Asker(authority.nc, org.id, key)
        reply = await asker.ask(subjects.replay(org.id), replay_request, {"groupId": group, "after": 0})
    assert code_of(reply) == "GROUP_NOT_FOUND"
    assert reply["error"]["message"] == f"no Group {group} that this Principal may see"
    assert reply["error"]["groupId"] == group


async def test_a_late_member_sees_only_above_its_visibility(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-23: replay below a later visibility start is refused as not visible, from there on it is complete."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("late")
        built = await org.plant_group(group, 10)
        await org.plant_membership(group, key.principal, state="provisional", visibility=6)
        asker = Asker(authority.nc, org.id, key)
        subject = subjects.replay(org.id)
        refused = [await asker.ask(subject, replay_request, {"groupId": group, "after": after}) for after in (0, 5)]
        pages = await every_page(asker, subject, {"groupId": group, "after": 6})
    for reply in refused:
        assert code_of(reply) == "AUTH_FORBIDDEN"
        assert "not visible" in reply["error"]["message"]
        assert reply["error"]["details"] == {"visibilityStartSequence": 6}
    assert_same_bytes(pages, built[6:])


async def test_people_and_services_read_too(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-30: a human member reads its Group, a service of the Organization any Group."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        built = await org.plant_group(group, 3)
        owner = org.organization.keys.mission_owner
        await org.plant_membership(group, owner.principal)
        for key in (owner, org.organization.keys.operator):
            asker = Asker(authority.nc, org.id, key)
            pages = await every_page(asker, subjects.replay(org.id), {"groupId": group, "after": 0})
            assert_same_bytes(pages, built)


async def test_a_shard_is_replayed_to_services_only(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """RULE-30: services read a whole shard by position, in log order over all its Groups."""
    other = "urn:weavehold:group:beta"
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("reader")
        first = await org.plant_group(group, 4)
        second = await org.plant_group(other, 3)
        third = await org.append(group, first[-1], 2)
        await org.plant_membership(group, key.principal)
        operator = Asker(authority.nc, org.id, org.organization.keys.operator)
        subject = subjects.replay(org.id)
        pages: list[ShardPage] = []
        following: int | None = 0
        while following is not None:
            asked = {"shardId": 1, "afterPosition": following, "limitEvents": 4}
            pages.append(msgspec.json.decode(await operator.raw(subject, replay_request, asked), type=ShardPage))
            following = pages[-1].next
        empty = await operator.ask(subject, replay_request, {"shardId": 2, "afterPosition": 0})
        unknown = await operator.ask(subject, replay_request, {"shardId": 3, "afterPosition": 0})
        member = Asker(authority.nc, org.id, key)
        refused = await member.ask(subject, replay_request, {"shardId": 1, "afterPosition": 0})
    events = [event for page in pages for event in page.events]
    assert [bytes(event.event) for event in events] == [item.raw for item in (*first, *second, *third)]
    assert [event.position for event in events] == list(range(1, 10))
    assert [(page.head.shard_id, page.head.position) for page in pages] == [(1, 9)] * 3
    assert empty == {"events": [], "next": None, "head": {"incarnation": org.incarnation, "shardId": 2, "position": 0}}
    assert (code_of(unknown), code_of(refused)) == ("INVALID_COMMAND", "AUTH_FORBIDDEN")


async def plant_twin(org: PlantedOrganization, count: int) -> list[BuiltEvent]:
    """The same names in every Organization: one Group, one Agent, one Membership."""
    key = await org.add_agent("twin")
    built = await org.plant_group(group, count)
    await org.plant_membership(group, key.principal)
    return built


async def test_two_organizations_with_the_same_names_never_meet(
    database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """RULE-32: the same Group, Agent and key in two Organizations: each reads its own history and nothing else."""
    async with planted(database_url, tmp_path, "one") as one, planted(database_url, tmp_path, "two") as two:
        histories = {one.id: await plant_twin(one, 4), two.id: await plant_twin(two, 7)}
        only_two = "urn:weavehold:group:only-two"
        await two.plant_group(only_two, 1, shard_id=2)
        await two.plant_membership(only_two, principal("twin"))
        async with serving(database_url, nats_url, one) as first, serving(database_url, nats_url, two) as second:
            for org, authority in ((one, first), (two, second)):
                asker = Asker(authority.nc, org.id, signing_key("twin"))
                pages = await every_page(asker, subjects.replay(org.id), {"groupId": group, "after": 0})
                assert_same_bytes(pages, histories[org.id])
            stranger = Asker(first.nc, one.id, signing_key("twin"))
            across = await stranger.ask(subjects.replay(one.id), replay_request, {"groupId": only_two, "after": 0})
    assert code_of(across) == "GROUP_NOT_FOUND"
