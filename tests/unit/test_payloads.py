"""Command payloads are closed, defaulted and judged after the envelope (RULE-01)."""

from typing import Any, Final

import msgspec
import pytest

from contracts import group_state
from contracts.command import (
    Command,
    agent_card_register,
    core_command_kinds,
    history_resume,
    key_register,
    key_retire,
    key_revoke,
    lease_renew,
    session_open,
)
from contracts.documents.common import Document
from contracts.documents.reading import read
from contracts.event import core_event_kinds, organization_scoped_event_kinds
from contracts.payloads.membership import MembershipChange
from contracts.payloads.message import MessagePost
from contracts.payloads.mission import MissionCreate
from contracts.payloads.registry import command_payloads, event_payloads, read_command_payload
from contracts.payloads.work import WorkAcceptOffer, WorkAuthorize, WorkStart
from contracts.rejection import Code, Rejection
from tests import document_samples as samples
from tests.document_samples import documents

fences: Final = {"workItemId": samples.work_item_id, "ownershipEpoch": 1, "executionLeaseId": "urn:uuid:1"}
criteria: Final = {"definitionOfDone": [samples.criterion], "deadline": samples.when}
checkpoint: Final = {"phase": "draft", "completedMilestones": ["plan"], "createdAt": samples.when}

payloads: Final[dict[str, dict[str, Any]]] = {
    agent_card_register: {"card": documents["agent-card"]},
    session_open: {"agentId": samples.agent["id"], "keyId": "urn:weavehold:key:ada"},
    key_register: {
        "keyId": "urn:weavehold:key:new",
        "principal": samples.service,
        "algorithm": "Ed25519",
        "publicKey": "AAAA",
    },
    key_retire: {"keyId": "urn:weavehold:key:new", "validUntil": samples.when},
    history_resume: {"incarnation": "a" * 32, "reason": "Restored.", "abandoned": ["b" * 32]},
    key_revoke: {"keyId": "urn:weavehold:key:new", "reason": "Lost."},
    "mission.create": {
        "missionId": samples.mission_id,
        "groupId": samples.group_id,
        "coordinatorId": samples.agent["id"],
        "title": "Pagination",
        "objective": "Ship it.",
        **criteria,
    },
    "mission.assign_coordinator": {"coordinatorId": samples.agent["id"]},
    "mission.renew_coordinator": {},
    "mission.submit_for_approval": {"artifactHashes": [samples.digest]},
    "mission.request_changes": {"missionRevision": 3, "feedback": "More tests."},
    "mission.approve": {"approval": documents["approval"]},
    "membership.change": {"principal": samples.agent, "role": "worker"},
    "message.post": {
        "messageId": "urn:weavehold:message:one",
        "conversationId": samples.conversation_id,
        "content": [{"type": "text", "text": "Hello."}],
    },
    "work.authorize": {"workItemId": samples.work_item_id, "contract": samples.contract},
    "work.offer": {
        "workItemId": samples.work_item_id,
        "candidateAgentIds": [samples.agent["id"]],
        "selectionBasis": samples.selection_basis,
    },
    "work.accept_offer": {"workItemId": samples.work_item_id},
    "work.start": {"workItemId": samples.work_item_id, "ownershipEpoch": 1},
    "work.checkpoint": {**fences, "checkpoint": checkpoint},
    lease_renew: fences,
    "artifact.publish": {
        "artifact": documents["artifact"],
        "ownershipEpoch": 1,
        "executionLeaseId": "urn:uuid:1",
    },
    "work.submit": {**fences, "artifactIds": ["urn:weavehold:artifact:one"], "evidence": [documents["evidence"]]},
    "work.accept_result": {"workItemId": samples.work_item_id, "evidence": [documents["evidence"]]},
}


def command(kind: str, payload: dict[str, Any], **envelope: Any) -> Command:
    """A Command of this kind by whoever may send it."""
    document = {**documents["command"], "kind": kind, "payload": payload, **envelope}
    if kind in {agent_card_register, session_open}:
        document["actor"] = samples.service
        for member in ("groupId", "sessionEpoch", "membershipEpoch"):
            del document[member]
    elif kind == "mission.create":
        document["actor"] = samples.human
        del document["sessionEpoch"], document["membershipEpoch"]
    elif kind in {"mission.renew_coordinator", "mission.submit_for_approval", "work.accept_result"}:
        document["coordinatorEpoch"] = 1
    return read(document, Command)


def payload_of(kind: str, payload: dict[str, Any], **envelope: Any) -> Document:
    read_payload = read_command_payload(command(kind, payload, **envelope))
    assert not isinstance(read_payload, Rejection), read_payload
    return read_payload


def refusal_of(kind: str, payload: dict[str, Any], **envelope: Any) -> Rejection:
    rejection = read_command_payload(command(kind, payload, **envelope))
    assert isinstance(rejection, Rejection), rejection
    assert rejection.related_action_id == documents["command"]["actionId"]
    assert not rejection.retryable
    return rejection


def test_acc_6_every_served_kind_is_a_kind_of_the_envelope() -> None:
    """ACC-6: no payload is registered for a kind that the envelope would refuse, and every one is tried here."""
    assert set(payloads) == set(command_payloads)
    assert {kind for kind in command_payloads if not kind.startswith("ext.")} <= core_command_kinds
    assert {kind for kind in event_payloads if not kind.startswith("ext.")} <= core_event_kinds


def test_prj_5_the_fold_reads_events_by_the_registered_structs() -> None:
    """PRJ-5: the fold and the registry agree on every kind; only Organization-scoped facts fold elsewhere."""
    folded = {kind: fold.payload for kind, fold in group_state._folds.items()}
    assert {
        kind: shape for kind, shape in event_payloads.items() if kind not in organization_scoped_event_kinds
    } == folded


@pytest.mark.parametrize("kind", sorted(payloads))
def test_rule_01_payload_is_read_into_its_struct_and_kept(kind: str) -> None:
    """RULE-01: the least payload of each kind is enough, and writing it gives the same JSON."""
    read_payload = payload_of(kind, payloads[kind])
    assert type(read_payload) is command_payloads[kind]
    assert msgspec.json.decode(msgspec.json.encode(read_payload)) == payloads[kind]


@pytest.mark.parametrize("kind", sorted(payloads))
def test_rule_01_unknown_and_null_members_are_refused(kind: str) -> None:
    """RULE-01, ERR-1: payloads are closed and JSON null never stands for an absent member."""
    for payload in ({**payloads[kind], "authority": True}, dict.fromkeys(payloads[kind]) or {"leaseSeconds": None}):
        rejection = refusal_of(kind, payload)
        expected = Code.WORK_CONTRACT_INCOMPLETE if kind == "work.authorize" else Code.SCHEMA_VALIDATION_FAILED
        if "authority" in payload:
            expected = Code.SCHEMA_VALIDATION_FAILED
        assert rejection.code is expected, rejection
        assert kind in rejection.message or "contract" in rejection.message


def test_rule_01_defaults_are_those_of_the_protocol() -> None:
    """RULE-01: spans that a Command leaves out."""
    accept, start = (
        payload_of("work.accept_offer", payloads["work.accept_offer"]),
        payload_of("work.start", payloads["work.start"]),
    )
    create, change = (
        payload_of("mission.create", payloads["mission.create"]),
        payload_of("membership.change", payloads["membership.change"]),
    )
    assert isinstance(accept, WorkAcceptOffer)
    assert (accept.ownership_lease_seconds, accept.start_by_seconds) == (900, 300)
    assert isinstance(start, WorkStart)
    assert start.execution_lease_seconds == 300
    assert isinstance(create, MissionCreate)
    assert (create.coordinator_lease_seconds, create.permissions) == (300, ())
    assert isinstance(change, MembershipChange)
    assert (change.scopes, change.provisional) == (("group",), False)


@pytest.mark.parametrize("seconds", [0, -1, 31_536_001, 1.5, "300", True])
def test_rule_01_spans_are_bounded_whole_seconds(seconds: Any) -> None:
    """RULE-01: from one second to one year."""
    payload = {**payloads["work.start"], "executionLeaseSeconds": seconds}
    assert refusal_of("work.start", payload).code is Code.SCHEMA_VALIDATION_FAILED


def test_rule_01_the_envelope_may_name_conversation_and_work_item() -> None:
    """RULE-01: stated once, in either place; two different statements are INVALID_COMMAND."""
    start = payload_of("work.start", {"ownershipEpoch": 1}, workItemId=samples.work_item_id)
    assert isinstance(start, WorkStart)
    assert start.work_item_id == samples.work_item_id
    post = {name: value for name, value in payloads["message.post"].items() if name != "conversationId"}
    posted = payload_of("message.post", post, conversationId="urn:weavehold:conversation:two")
    assert isinstance(posted, MessagePost)
    assert posted.conversation_id == "urn:weavehold:conversation:two"
    payload_of("work.start", payloads["work.start"], workItemId=samples.work_item_id)
    rejection = refusal_of("work.start", payloads["work.start"], workItemId="urn:weavehold:work-item:two")
    assert rejection.code is Code.INVALID_COMMAND
    assert "workItemId differs between envelope and payload" in rejection.message


def test_err_1_a_kind_that_is_not_served_is_an_invalid_command() -> None:
    """ERR-1: known to the protocol or not, a kind without a payload here is refused by name."""
    rejection = refusal_of("ext.acme.work.park", {})
    assert rejection.code is Code.INVALID_COMMAND
    assert "ext.acme.work.park" in rejection.message


@pytest.mark.parametrize("member", sorted(samples.contract))
def test_stm_w_an_incomplete_contract_is_named_as_such(member: str) -> None:
    """STM-W: a WorkItem is authorised under a complete Work Contract only."""
    contract = {name: value for name, value in samples.contract.items() if name != member}
    rejection = refusal_of("work.authorize", {"workItemId": samples.work_item_id, "contract": contract})
    assert rejection.code is Code.WORK_CONTRACT_INCOMPLETE
    assert member in rejection.message
    assert isinstance(payload_of("work.authorize", payloads["work.authorize"]), WorkAuthorize)


def test_stm_w_no_contract_at_all_is_incomplete() -> None:
    """STM-W: the same for none."""
    assert refusal_of("work.authorize", {"workItemId": "a:b"}).code is Code.WORK_CONTRACT_INCOMPLETE


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("membership.change", {"provisional": True}, "contextPackageId is missing"),
        ("membership.change", {"scopes": ["group", "group"]}, "scopes repeats"),
        ("membership.change", {"role": "boss"}, "Invalid enum value 'boss'"),
        ("mission.create", {"permissions": ["a", "a"]}, "permissions repeats"),
        (
            "mission.create",
            {"approvalPolicy": {"finalHumanApproval": False, "highRiskExecutionApproval": True}},
            "a root Mission needs true",
        ),
        ("message.post", {"references": ["a:b", "a:b"]}, "references repeats"),
        ("work.offer", {"candidateAgentIds": []}, "length >= 1"),
        ("work.offer", {"candidateAgentIds": ["a:b", "a:b"]}, "candidateAgentIds repeats"),
        ("work.submit", {"artifactIds": ["a:b", "a:b"]}, "artifactIds repeats"),
        ("mission.submit_for_approval", {"artifactHashes": [samples.digest] * 2}, "artifactHashes repeats"),
    ],
)
def test_rule_01_payload_rules_are_named_with_their_remedy(kind: str, change: dict[str, Any], words: str) -> None:
    """RULE-01, ERR-1: what a document will demand is demanded of the Command already."""
    rejection = refusal_of(kind, {**payloads[kind], **change})
    assert rejection.code is Code.SCHEMA_VALIDATION_FAILED
    assert words in rejection.message
