"""The client against a real authority: sessions, epochs, retries, reads."""

import itertools
from datetime import timedelta

import pytest
import pytest_asyncio

from contracts.chain import ChainHash
from contracts.cursor import Cursor
from contracts.documents.common import Actor, ActorType
from contracts.documents.message import TextPart
from contracts.identifiers import GroupSequence, MembershipEpoch
from contracts.payloads.membership import MembershipChange
from contracts.payloads.message import MessagePost
from contracts.rejection import Code
from ops.demo.mission_documents import agent_id
from services.agent.connect import SessionLost
from services.agent.send_command import Answered, Refusal, Refused, RetryPolicy, Unresolved
from services.agent.sign_command import Intent
from tests.agent_rig import PlantedMission, accepted, running_stack, shared_organization_of, small_mission

pytestmark = pytest.mark.asyncio(loop_scope="module")
names = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(postgres_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stack")
    async with shared_organization_of(postgres_server, folder) as shared, running_stack(*shared, folder) as running:
        await running.register("editor", "ada")
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def mission(stack, tmp_path):
    coordinator = await stack.client("editor")
    await coordinator.open_session()
    planted = PlantedMission(stack, coordinator, small_mission(tmp_path), f"client-{next(names)}")
    await planted.create()
    return planted


def words(mission, text="hello"):
    message = MessagePost(
        message_id=f"{mission.group_id}:{text}",
        conversation_id=mission.view.state.group.main_conversation_id,
        content=(TextPart(text=text),),
    )
    return Intent(kind="message.post", payload=message, group_id=mission.group_id)


async def test_unchanged_retry_returns_the_first_receipt(mission):
    """MWP-EVT-003, MWP-EXT-005: the same bytes get the same Receipt, and nothing is appended twice."""
    first = await mission.owner.send(words(mission))
    again = await mission.owner.send(words(mission), resume=first.command)
    assert isinstance(first, Answered)
    assert first.value == again.value
    await mission.view.refresh()
    assert mission.kinds().count("message.posted") == 1


async def test_other_content_under_the_same_action_id_collides(mission):
    """MWP-EVT-003, MWP-EXT-005: a collision is a final value unless the caller builds anew."""

    def named(_attempt):
        return f"{mission.group_id}:action"

    assert isinstance(await mission.owner.send(words(mission, "a"), name_attempt=named), Answered)
    answer = await mission.owner.send(words(mission, "b"), name_attempt=named)
    assert isinstance(answer, Refused)
    assert answer.code is Code.ACTION_ID_COLLISION


async def test_a_replaced_session_is_reopened_where_that_is_allowed(stack, mission):
    """MWP-WRK-014, MWP-EXT-005: a client that may reopen builds the Command anew; a Worker's client says so instead."""
    epoch = mission.coordinator.session.epoch
    rival = await stack.client("editor", reopens=False)
    assert (await rival.open_session()).epoch == epoch + 1
    assert isinstance(await mission.coordinator.send(words(mission, "anew")), Answered)
    assert mission.coordinator.session.epoch == epoch + 2
    answer = await rival.send(words(mission, "late"))
    assert isinstance(answer, Refused)
    assert answer.code is Code.AUTH_STALE_SESSION


async def test_a_stale_membership_epoch_is_read_again(stack, mission):
    """MWP-EXT-005, ACC-6: the client learns its new Membership Epoch and signs again."""
    await mission.invite("ada")
    ada = await stack.client("ada")
    await ada.open_session()
    assert isinstance(await ada.send(words(mission, "first")), Answered)
    await mission.invite("ada")
    assert ada.epochs(mission.group_id).membership == MembershipEpoch(1)
    assert isinstance(await ada.send(words(mission, "second")), Answered)
    assert ada.epochs(mission.group_id).membership == MembershipEpoch(2)


@pytest.mark.parametrize("wrong", [timedelta(minutes=-10), timedelta(minutes=2), timedelta(seconds=-60)])
async def test_a_wrong_local_clock_is_corrected(mission, wrong):
    """TRU-6, LSE-1: a client whose clock is wrong learns the authority's time from its answers."""
    mission.owner._clock_offset = wrong
    assert isinstance(await mission.owner.send(words(mission)), Answered)
    # What is left is how long the answer was on its way.
    assert abs(mission.owner._clock_offset) < timedelta(seconds=20)


async def test_unregistered_agents_and_foreign_keys_get_no_session(stack):
    """TRU-5: the handshake says the same whatever is wrong."""
    nobody = await stack.client("nobody")
    with pytest.raises(SessionLost, match="AUTH_INVALID_SIGNATURE"):
        await nobody.open_session()


async def test_reads_show_what_the_actor_may_see(stack, mission):
    """RULE-30: pages, heads and Memberships are for members; others learn nothing."""
    await stack.register("grace")
    history = mission.coordinator.history
    page = await history.group_page(mission.group_id, 0, limit=1)
    assert (len(page.events), page.next) == (1, None if page.head.sequence == 1 else 1)
    [head] = await history.heads([mission.group_id, "urn:test:group:none"])
    assert head == page.head
    standing = await mission.coordinator.history.memberships()
    assert [held.role for held in standing.memberships if held.group_id == mission.group_id] == ["coordinator"]
    stranger = await stack.client("grace")
    await stranger.open_session()
    refused = await stranger.history.group_page(mission.group_id, 0)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.GROUP_NOT_FOUND
    assert await stranger.history.heads([mission.group_id]) == ()
    owner = await mission.owner.history.memberships()
    assert (mission.group_id, "mission_owner") in [(held.group_id, held.role) for held in owner.memberships]


async def test_a_durable_cursor_is_acknowledged_with_proof(mission):
    """MWP-WRK-030: the position is kept when the chain hash is right, and unchanged when it is not."""
    [head] = await mission.owner.history.heads([mission.group_id])
    cursor = Cursor(
        head.incarnation, head.group_id, GroupSequence(head.sequence), ChainHash(bytes.fromhex(head.chain_hash))
    )
    assert await mission.owner.history.acknowledge(cursor) == head
    wrong = Cursor(head.incarnation, head.group_id, cursor.sequence, ChainHash(bytes(32)))
    refused = await mission.owner.history.acknowledge(wrong)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.INVALID_COMMAND


async def test_a_killed_authority_loses_no_command(stack, mission):
    """MWP-EXT-005, ACC-2: a Command sent while no authority runs is accepted once one runs again, exactly once."""
    authority = stack.processes[0]
    authority.kill()
    short = RetryPolicy(deadline_seconds=0.5, reply_timeout_seconds=0.2)
    unknown = await mission.owner.send(words(mission), policy=short)
    assert isinstance(unknown, Unresolved)
    authority.start()
    settled = await mission.owner.send(words(mission), resume=unknown.command)
    assert isinstance(settled, Answered)
    await mission.view.refresh()
    assert mission.kinds().count("message.posted") == 1


async def test_membership_change_needs_the_coordinators_epoch(mission):
    """ACC-6: Coordinator-only Commands carry the Coordinator Epoch; without it the refusal is a value."""
    member = Actor(type=ActorType.AGENT, id=agent_id("ada"))
    change = MembershipChange(principal=member, role="worker")
    intent = Intent(kind="membership.change", payload=change, group_id=mission.group_id)
    answer = await mission.coordinator.send(intent)
    assert isinstance(answer, Refused)
    assert answer.code is Code.AUTH_STALE_COORDINATOR
    assert await accepted(mission.owner, intent)
