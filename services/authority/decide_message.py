"""Decisions about Messages. A Message is context: it authorises nothing and changes nothing but the Conversation."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from contracts.documents.conversation import AccessMode, Conversation, ConversationState
from contracts.documents.message import Message, MessageKind
from contracts.payloads.message import MessagePost, MessagePosted
from contracts.rejection import Code, Rejection
from services.authority.decision import EventDraft
from services.authority.gates import by_full_member, member_entry
from services.authority.rule import Case, Rule


def _new_message(_: Case[MessagePost]) -> int:
    """The Message is what comes into being."""
    return 0


def _conversation(case: Case[MessagePost]) -> Conversation:
    conversation = case.state.conversation(case.payload.conversation_id)
    if conversation is None:
        raise LookupError(f"Conversation {case.payload.conversation_id} is unknown")
    return conversation


def _conversation_known(case: Case[MessagePost]) -> Rejection | None:
    if case.state.conversation(case.payload.conversation_id) is not None:
        return None
    message = f"Conversation {case.payload.conversation_id} is unknown in Group {case.state.group_id}"
    return case.refuse(Code.INVALID_COMMAND, message)


def _author_may_speak(case: Case[MessagePost]) -> Rejection | None:
    access = _conversation(case).access
    if access.mode is AccessMode.GROUP or case.command.actor in (access.members or ()):
        return None
    return case.refuse(Code.AUTH_FORBIDDEN, f"Conversation {case.payload.conversation_id} is restricted to its members")


def _conversation_open(case: Case[MessagePost]) -> Rejection | None:
    if _conversation(case).state is ConversationState.ACTIVE:
        return None
    return case.refuse(Code.INVALID_STATE_TRANSITION, f"Conversation {case.payload.conversation_id} is closed")


def _posted(case: Case[MessagePost]) -> tuple[EventDraft, ...]:
    payload, conversation = case.payload, _conversation(case)
    message = Message(
        message_id=payload.message_id,
        mission_id=conversation.mission_id,
        group_id=conversation.group_id,
        conversation_id=conversation.conversation_id,
        author=case.command.actor,
        kind=MessageKind.MESSAGE,
        authority=False,
        content=payload.content,
        mentions=payload.mentions,
        references=payload.references,
        committed_at=case.context.now_text,
    )
    draft = case.draft(
        MessagePosted(message=message),
        1,
        conversation_id=conversation.conversation_id,
        work_item_id=conversation.primary_work_item_id,
    )
    return (draft,)


message_rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        "message.post": Rule[MessagePost](
            event="message.posted",
            aggregate=_new_message,
            events=_posted,
            claims=lambda payload: ((payload.message_id, "message"),),
            entry=member_entry,
            fence=(_conversation_known,),
            policy=(by_full_member, _author_may_speak),
            state=(_conversation_open,),
        ),
    }
)
