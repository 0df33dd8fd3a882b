"""Decisions about Messages: context only, in open Conversations, by active members."""

from msgspec import convert
from msgspec.structs import replace

from contracts.documents.conversation import AccessMode, ConversationAccess, ConversationState
from contracts.documents.message import Message
from contracts.entities import ConversationRecord, EntityKind
from contracts.group_entities import changed
from contracts.rejection import Code
from tests.builders import identifier
from tests.mission_documents import item, message, operator, owner, stranger, worker
from tests.scene import Scene


def test_a_message_is_committed_as_context() -> None:
    """STM-M: it authorises nothing, moves no revision and no WorkItem, and carries its author and acceptance time."""
    scene = Scene().with_work("open")
    before, digest_of_work = scene.state.mission, scene.work()
    conversation = scene.work().item.conversation_id
    (draft,) = scene.accept("message.post", message(conversationId=conversation), owner)
    committed = convert(draft.payload["message"], Message)
    assert (committed.author, committed.authority, committed.committed_at) == (owner, False, scene.time)
    assert (draft.aggregate_revision, draft.conversation_id, draft.work_item_id) == (1, conversation, item)
    assert (scene.state.mission, scene.work()) == (before, digest_of_work)


def test_a_message_to_an_unknown_conversation_is_invalid() -> None:
    """RULE-14: what is unknown in a visible Group is INVALID_COMMAND naming it."""
    refusal = Scene().with_mission().refuse("message.post", message(conversationId="urn:test:none"), worker)
    assert refusal.code is Code.INVALID_COMMAND
    assert "urn:test:none" in refusal.message


def test_who_may_speak_where() -> None:
    """A restricted Conversation is its members', a closed one nobody's; services do not speak."""
    scene = Scene().with_mission()
    assert scene.code("message.post", message(), operator) is Code.AUTH_FORBIDDEN
    main = scene.state.conversation(scene.state.group.main_conversation_id)
    assert main is not None
    access = ConversationAccess(mode=AccessMode.RESTRICTED, members=(owner,))
    for put, author, code in (
        (replace(main, access=access), worker, Code.AUTH_FORBIDDEN),
        (replace(main, state=ConversationState.CLOSED), owner, Code.INVALID_STATE_TRANSITION),
    ):
        record = ConversationRecord(conversation=put)
        scene.state.apply([changed(EntityKind.CONVERSATION, main.conversation_id, record)])
        assert scene.code("message.post", message(), author) is code
    record = ConversationRecord(conversation=replace(main, access=access))
    scene.state.apply([changed(EntityKind.CONVERSATION, main.conversation_id, record)])
    scene.accept("message.post", message(), owner)
    assert scene.code("message.post", message(2, messageId=identifier("m")), stranger) is Code.GROUP_NOT_FOUND
