"""Signed reads: the requests that are not Commands, and what answers them (RULE-30).

A read travels in the envelope of a Command, is verified and must be fresh like one, and is never recorded. Its
kind says what is asked; the payloads below are closed. An Agent cannot know a Group or a Membership Epoch before
its first read: `groupId` of the envelope may be any identifier and `membershipEpoch` is not compared, while
`sessionEpoch` must be the current one.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from contracts.bounds import replay_page_bytes_max, replay_page_events_max
from contracts.documents.common import Document, Signature
from contracts.identifiers import Identifier, PositiveInteger, SafeInteger
from contracts.key_registry import KeyBinding
from contracts.timestamps import Timestamp

replay_request: Final = "ext.weavehold.request.replay"
acknowledge_request: Final = "ext.weavehold.request.acknowledge"
heads_request: Final = "ext.weavehold.request.heads"
memberships_request: Final = "ext.weavehold.request.memberships"
keys_request: Final = "ext.weavehold.request.keys"

heads_groups_max: Final = 256
"""Groups of which one request asks the heads."""
memberships_page_max: Final = 400
"""Memberships in one reply."""
keys_asked_max: Final = 100
"""Keys of which one request asks the bindings."""
keys_reply_bytes_max: Final = 1024 * 1024
"""Bytes of a reply about keys."""
shard_number_max: Final = 1_024
"""The highest shard number that a deployment may have."""

Incarnation = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""The identity of one history, 32 hexadecimal digits."""
HexDigest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
"""A chain hash h_n: 32 bytes in lower-case hexadecimal."""
_PageBytes = Annotated[int, Meta(ge=1, le=replay_page_bytes_max)]
_PageEvents = Annotated[int, Meta(ge=1, le=replay_page_events_max)]


class GroupReplay(Document, frozen=True, kw_only=True):
    """Events of a Group with a sequence above `after`; a page never exceeds either limit, except by one Event alone."""

    group_id: Identifier
    after: SafeInteger
    limit_bytes: _PageBytes = replay_page_bytes_max
    limit_events: _PageEvents = replay_page_events_max


class ShardReplay(Document, frozen=True, kw_only=True):
    """Events of a shard with a position above `after_position`, for service actors."""

    shard_id: Annotated[int, Meta(ge=0, le=shard_number_max)]
    after_position: SafeInteger
    limit_bytes: _PageBytes = replay_page_bytes_max
    limit_events: _PageEvents = replay_page_events_max


class Acknowledge(Document, frozen=True, kw_only=True):
    """The actor's highest contiguous durable Cursor in one Group (MWP-WRK-030), with proof of what it consumed."""

    group_id: Identifier
    incarnation: Incarnation
    sequence: PositiveInteger
    chain_hash: HexDigest


class Heads(Document, frozen=True, kw_only=True):
    """The heads of some Groups; those that the actor may not see are left out of the answer."""

    group_ids: Annotated[tuple[Identifier, ...], Meta(min_length=1, max_length=heads_groups_max)]


class Memberships(Document, frozen=True, kw_only=True):
    """The actor's own Memberships in the order of Group IDs, those above `after_group_id` when it is given.

    The first page (without `after_group_id`) also provisions an Agent's delivery.
    """

    after_group_id: Identifier | UnsetType = UNSET


class Keys(Document, frozen=True, kw_only=True):
    """Some keys of the Organization's registry; those that it does not have are left out of the answer."""

    key_ids: Annotated[tuple[Identifier, ...], Meta(min_length=1, max_length=keys_asked_max)]


ReadPayload = GroupReplay | ShardReplay | Acknowledge | Heads | Memberships | Keys


def read_payload(kind: str, payload: Mapping[str, Any]) -> ReadPayload:
    """The typed payload of a read of this kind. Raises `msgspec.ValidationError` when its shape is wrong.

    Raises KeyError for a kind that is no read.
    """
    return msgspec.convert(payload, _shape(kind, payload))


def _shape(kind: str, payload: Mapping[str, Any]) -> type[ReadPayload]:
    """Replay has two forms, told apart by the name of what is replayed."""
    if kind == replay_request:
        return ShardReplay if "shardId" in payload else GroupReplay
    return _SHAPES[kind]


_SHAPES: Final[dict[str, type[ReadPayload]]] = {
    acknowledge_request: Acknowledge,
    heads_request: Heads,
    memberships_request: Memberships,
    keys_request: Keys,
}


class _Answer(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of what answers a read: open, so that a client of today understands an authority of tomorrow."""


class GroupHead(_Answer, frozen=True, kw_only=True):
    """Where a Group's history ends. `incarnation` is that of the last Event, `chain_hash` is h_sequence.

    Also the body of a head announcement (`subjects.head`).
    """

    incarnation: Incarnation
    group_id: Identifier
    sequence: PositiveInteger
    chain_hash: HexDigest


class ShardHead(_Answer, frozen=True, kw_only=True):
    """Where a shard's log ends (position 0 for an empty one). `incarnation` is the Organization's current one."""

    incarnation: Incarnation
    shard_id: int
    position: SafeInteger


class ReplayedEvent(_Answer, frozen=True, kw_only=True):
    """One Event: its bytes exactly as signed and stored, and the chain hash after it. `position` in a shard's page."""

    event: Raw
    chain_hash: HexDigest
    position: PositiveInteger | UnsetType = UNSET


class GroupPage(_Answer, frozen=True, kw_only=True):
    """A page of one Group in sequence. `next` is the `after` of the following page, null when the head is reached."""

    events: tuple[ReplayedEvent, ...]
    next: SafeInteger | None
    head: GroupHead


class ShardPage(_Answer, frozen=True, kw_only=True):
    """A page of one shard in order of position; `next` is the following `afterPosition`, null at the head."""

    events: tuple[ReplayedEvent, ...]
    next: SafeInteger | None
    head: ShardHead


class Acknowledged(_Answer, frozen=True, kw_only=True):
    """The position that the authority now keeps for the actor: the highest that it ever acknowledged."""

    acknowledged: GroupHead


class HeadList(_Answer, frozen=True, kw_only=True):
    """The heads of the asked Groups that the actor may see, in the order of the request."""

    heads: tuple[GroupHead, ...]


class HeldMembership(_Answer, frozen=True, kw_only=True):
    """One Membership of the actor that has not ended. `state` is `provisional` or `active`."""

    group_id: Identifier
    mission_id: Identifier
    shard_id: int
    role: str
    state: str
    membership_epoch: PositiveInteger
    visibility_start_sequence: SafeInteger


class Delivery(_Answer, frozen=True, kw_only=True):
    """The durable pull consumer of one shard that is provisioned for this Agent and session."""

    shard_id: int
    stream: str
    consumer: str


class MembershipList(_Answer, frozen=True, kw_only=True):
    """One page of the actor's Memberships. `next` is the following `afterGroupId`, null at the end.

    `incarnation` is the Organization's current one, `shard_count` how many shards its Mission trees have (1…S).
    `deliveries` cover all Memberships, whatever the page.
    """

    incarnation: Incarnation
    shard_count: PositiveInteger
    memberships: tuple[HeldMembership, ...]
    deliveries: tuple[Delivery, ...]
    next: Identifier | None


class KeyEvidence(Document, frozen=True, kw_only=True):
    """Registry evidence of some keys: `contracts.key_registry.RegistryEvidence` that may be empty."""

    organization_id: Identifier
    bindings: Annotated[tuple[KeyBinding, ...], Meta(max_length=keys_asked_max)]


class KeyList(_Answer, frozen=True, kw_only=True):
    """The asked keys as the registry has them at `answered_at`, signed by the authority (TRU-2).

    The signature covers the RFC 8785 bytes of the whole answer without it; `action_id` is the request's, so an answer
    cannot be given again. `bound_by` are the Events of the registry's history that bound asked keys: by them whoever
    trusts an earlier key of the authority comes to trust a later one, of which it has not heard.
    """

    kind: Literal["ext.weavehold.answer.keys"]
    action_id: Identifier
    answered_at: Timestamp
    registry: KeyEvidence
    bound_by: Annotated[tuple[dict[str, Any], ...], Meta(max_length=keys_asked_max)]
    signature: Signature
