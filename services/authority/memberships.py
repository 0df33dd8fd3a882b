"""Making Memberships and their next epochs as documents (`membership.schema.json`)."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from contracts.documents.common import Actor
from contracts.documents.membership import Membership, MembershipState, Role
from contracts.identifiers import MembershipEpoch
from services.authority.decision import DecisionContext

whole_group = ("group",)
"""The scope of a member that nothing narrows."""


def new_membership(
    context: DecisionContext, mission_id: str, group_id: str, member: Actor, role: Role, **members: Any
) -> Membership:
    """A first Membership, active and with the whole history unless `members` say otherwise."""
    given: dict[str, Any] = {
        "membership_id": context.new_id(),
        "state": MembershipState.ACTIVE,
        "membership_epoch": MembershipEpoch(context.next_epoch(0)),
        "scopes": whole_group,
        "visibility_start_sequence": 0,
        "granted_at": context.now_text,
        "activated_at": context.now_text,
    }
    return Membership(mission_id=mission_id, group_id=group_id, member=member, role=role, **(given | members))


def next_membership(context: DecisionContext, before: Membership, role: Role, **members: Any) -> Membership:
    """The same Membership at its next epoch, active again, with what a provisional or ended one carried removed."""
    was_active = before.state is MembershipState.ACTIVE
    given: dict[str, Any] = {
        "role": role,
        "state": MembershipState.ACTIVE,
        "membership_epoch": MembershipEpoch(context.next_epoch(before.membership_epoch)),
        "granted_at": context.now_text,
        "activated_at": before.activated_at if was_active else context.now_text,
        "context_package_id": UNSET,
        "provisional_expires_at": UNSET,
        "ended_at": UNSET,
    }
    return replace(before, **(given | members))
