"""Signed Group histories made beforehand, so that a benchmark measures a consumer and not their signing."""

import hashlib
import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from contracts.canonical import signing_bytes
from contracts.chain import SigningHash, chain_next, chain_start, history_extension, history_extension_version
from contracts.event_contracts import event_contracts
from contracts.signature import SigningKey, sign_document
from contracts.timestamps import format_timestamp, parse_timestamp

bench_organization: Final = "urn:weavehold:organization:bench"
_incarnation: Final = "0123456789abcdef0123456789abcdef"
_first: Final = parse_timestamp("2026-07-15T08:00:00Z")
_agent: Final = "urn:weavehold:agent:bench"
_owner: Final = "urn:weavehold:human:bench"
_paragraph: Final = "The supplier confirmed the revised delivery window for all three sites. " * 5

type Payload = dict[str, Any]


def sign_history(group_id: str, count: int, key: SigningKey) -> list[bytes]:
    """`count` chained Events as stored: a Mission, then WorkItems from authorization to acceptance amid Messages."""
    raws: list[bytes] = []
    previous = chain_start(bench_organization, group_id)
    for sequence in range(1, count + 1):
        kind, payload = _content(group_id, sequence)
        occurred_at = format_timestamp(_first + timedelta(seconds=sequence))
        history = {"incarnation": _incarnation, "previousHash": previous.hex(), "salt": secrets.token_hex(16)}
        document: Payload = {
            "protocolVersion": "0.1",
            "eventId": f"urn:uuid:{secrets.token_hex(16)}",
            "groupId": group_id,
            "sequence": sequence,
            "aggregateRevision": 1 + sequence % 8,
            "kind": kind,
            "actor": {"type": "agent", "id": _agent},
            "cause": {"type": "command", "id": f"urn:uuid:{secrets.token_hex(16)}"},
            "correlationId": f"urn:uuid:{secrets.token_hex(16)}",
            "occurredAt": occurred_at,
            "payload": payload,
            "acceptedBy": {"type": key.principal.type.value, "id": key.principal.id},
            "commandHash": f"sha256:{secrets.token_hex(32)}",
            "extensions": {
                history_extension: {"version": history_extension_version, "critical": False, "data": history},
                **event_contracts.marks(kind),
            },
        }
        if "workItemId" in payload:
            document["workItemId"] = payload["workItemId"]
        raws.append(sign_document(document, key, occurred_at))
        previous = chain_next(previous, SigningHash(hashlib.sha256(signing_bytes(document)).digest()))
    return raws


def _content(group_id: str, sequence: int) -> tuple[str, Payload]:
    """The kind and payload at a sequence: one WorkItem's course in every twelve Events, five Messages among them."""
    if sequence == 1:
        return "mission.created", _mission(group_id)
    turn, step = divmod(sequence - 2, len(_course))
    kind, make = _course[step]
    return kind, make(group_id, turn, sequence)


def _mission(group_id: str) -> Payload:
    members = ((_owner, "human", "mission_owner"), (_agent, "agent", "coordinator"))
    return {
        "mission": {
            "missionId": f"{group_id}:mission",
            "groupId": group_id,
            "objective": _paragraph,
            "coordinator": {"agentId": _agent, "coordinatorEpoch": 1, "leaseId": f"{group_id}:lease"},
            "state": "active",
        },
        "title": "Benchmark",
        "memberships": [
            {
                "membershipId": f"{group_id}:{member}",
                "missionId": f"{group_id}:mission",
                "member": {"type": kind, "id": member},
                "role": role,
                "state": "active",
                "membershipEpoch": 1,
            }
            for member, kind, role in members
        ],
    }


def _message(group_id: str, turn: int, sequence: int) -> Payload:
    return {
        "message": {
            "messageId": f"{group_id}:message:{sequence}",
            "missionId": f"{group_id}:mission",
            "groupId": group_id,
            "conversationId": f"{group_id}:conversation",
            "author": {"type": "agent", "id": _agent},
            "kind": "message",
            "authority": False,
            "content": [{"type": "text", "text": f"{turn}: {_paragraph}"}],
            "committedAt": format_timestamp(_first + timedelta(seconds=sequence)),
        }
    }


def _contract() -> Payload:
    return {
        "contractVersion": 1,
        "goal": _paragraph,
        "acceptanceCriteria": [
            {"criterionId": "done", "description": _paragraph, "evidenceRequired": ["human_review"]}
        ],
        "deadline": "2026-08-01T00:00:00Z",
        "requestedUrgency": "normal",
        "budget": {"modelTokenLimit": 1_000},
        "sideEffectRisk": "none",
        "executionApproval": "not_required",
    }


def _authorized(group_id: str, turn: int, sequence: int) -> Payload:
    del sequence
    item = {"workItemId": _item(group_id, turn), "conversationId": f"{group_id}:conversation", "contract": _contract()}
    return {"workItem": item, "proposalId": None}


def _offered(group_id: str, turn: int, sequence: int) -> Payload:
    offer = {"offerId": f"{group_id}:offer:{sequence}", "agentId": _agent, "expiresAt": "2026-08-01T00:00:00Z"}
    return {
        "workItemId": _item(group_id, turn),
        "offers": [offer | {"status": "pending", "agentCardVersion": 1}],
        "contract": _contract(),
    }


def _leased(group_id: str, turn: int, sequence: int) -> Payload:
    lease = {
        "leaseId": f"{group_id}:lease:{sequence}",
        "missionId": f"{group_id}:mission",
        "groupId": group_id,
        "workItemId": _item(group_id, turn),
        "holderAgentId": _agent,
        "sessionEpoch": 1,
        "ownershipEpoch": 1,
        "issuedAt": "2026-07-15T08:00:00Z",
        "startsAt": "2026-07-15T08:00:00Z",
        "expiresAt": "2026-08-01T00:00:00Z",
        "state": "active",
        "renewalCount": 0,
    }
    return {"workItemId": _item(group_id, turn), "ownershipEpoch": 1, "lease": lease, "executionLease": lease}


def _item(group_id: str, turn: int) -> str:
    return f"{group_id}:work-item:{turn}"


_course: Final[tuple[tuple[str, Callable[[str, int, int], Payload]], ...]] = (
    ("work.authorized", _authorized),
    ("message.posted", _message),
    ("work.offer.created", _offered),
    ("work.offer.accepted", _leased),
    ("message.posted", _message),
    ("work.started", _leased),
    ("message.posted", _message),
    ("work.progressed", _leased),
    ("message.posted", _message),
    ("work.submitted", _leased),
    ("message.posted", _message),
    ("work.result.accepted", _leased),
)
