"""Payloads of the Membership family."""

from msgspec import UNSET, UnsetType

from contracts.documents.common import Actor, Document, NonEmpty
from contracts.documents.conditions import has, unique, when
from contracts.documents.membership import Membership, Role, Scope
from contracts.identifiers import Identifier, SafeInteger
from contracts.timestamps import Timestamp


class MembershipChange(Document, frozen=True, kw_only=True):
    """`membership.change`: a new member, or another role for one; the Membership Epoch rises.

    `visibility_after_sequence` absent means the current head for a new member and no change for one that stays. A
    provisional member needs its Context Package and an end.
    """

    principal: Actor
    role: Role
    scopes: NonEmpty[Scope] = ("group",)
    provisional: bool = False
    visibility_after_sequence: SafeInteger | UnsetType = UNSET
    context_package_id: Identifier | UnsetType = UNSET
    provisional_expires_at: Timestamp | UnsetType = UNSET

    rules = (
        *unique("scopes"),
        when(
            has("provisional", True),
            holder="a provisional Membership",
            requires=("context_package_id", "provisional_expires_at"),
        ),
    )


class MembershipChanged(Document, frozen=True, kw_only=True):
    """`membership.changed`."""

    membership: Membership
