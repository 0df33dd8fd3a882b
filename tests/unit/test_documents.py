"""The documents' rules that span members, each with its remedy in the message (TRU-1, stage `schema`)."""

from typing import Any, Final

import msgspec
import pytest

from contracts.document_kinds import DocumentKind
from contracts.documents.agent_card import AgentCard
from contracts.documents.common import ActorType
from contracts.documents.message import ArtifactPart, DataPart, Message, TextPart
from contracts.documents.reading import read
from contracts.documents.schemas import document_types, read_document, schema_names
from contracts.documents.work_item import WorkItem
from tests import document_samples as samples
from tests.document_samples import documents

absent: Final = "(absent)"
"""Marks a member that a change takes away; a text, so that every test process gives the test the same name."""

Change = dict[str, Any]


def changed(schema: str, change: Change) -> dict[str, Any]:
    """The sample of a schema with members set or taken away; a dotted name leads inwards."""
    document = msgspec.json.decode(msgspec.json.encode(documents[schema]))
    for name, value in change.items():
        *path, last = name.split(".")
        holder = document
        for step in path:
            holder = holder[int(step)] if step.isdigit() else holder[step]
        if value is absent:
            del holder[last]
        else:
            holder[last] = value
    return dict(document)


closed: Final[Change] = {"closedAt": samples.when, "closureReason": "submitted"}
agent_command: Final[Change] = {"sessionEpoch": absent, "membershipEpoch": absent}
hello: Final[Change] = {"frameType": "HELLO", "subscriptionId": absent, "groups": absent}
nonce: Final = {"clientNonce": "bm9uY2U"}

accepted: Final[list[tuple[str, Change]]] = [
    ("approval", {"decision": "denied", "artifactHashes": []}),
    ("approval", {"kind": "work_execution", "workItemId": samples.work_item_id, "approver": samples.agent}),
    ("approval", {"decision": "revoked", "revokesApprovalId": "urn:weavehold:approval:zero"}),
    ("command", {**agent_command, "actor": samples.human, "kind": "mission.create"}),
    ("command", {"sessionEpoch": absent, "actor": samples.human}),
    ("command", {**agent_command, "actor": samples.service, "kind": "mission.terminate"}),
    ("command", {"kind": "work.accept_result", "coordinatorEpoch": 1}),
    ("conversation", {"type": "restricted", "access": {"mode": "restricted", "members": [samples.agent]}}),
    ("conversation", {"type": "work_item", "primaryWorkItemId": samples.work_item_id}),
    ("event", {"kind": "ext.acme.work.parked"}),
    ("group", {"state": "archived", "archivedAt": samples.when, "archiveSnapshotId": "urn:weavehold:snapshot:one"}),
    ("lease", {"state": "released", **closed}),
    ("lease", {"renewalCount": 1, "lastRenewedAt": samples.when}),
    ("lease", {"leaseType": "ownership", "startBy": samples.when, "graceExpiresAt": samples.when}),
    ("lease", {"leaseType": "coordinator", "coordinatorEpoch": 1, "workItemId": absent, "ownershipEpoch": absent}),
    ("membership", {"delegationGrants": [samples.grant]}),
    ("membership", {"state": "ended", "endedAt": samples.when, "activatedAt": absent}),
    ("message", {"kind": "correction", "targetMessageId": "urn:weavehold:message:zero", "reason": "A slip."}),
    ("mission", {"missionOwner": samples.agent, "parent": {"missionId": "a:b", "workItemId": "a:c", "depth": 1}}),
    ("mission", {"budget": samples.full_budget}),
    (
        "websocket-frame",
        {**hello, **nonce, "phase": "client_init", "agentId": "a:b", "keyId": "k:1", "supportedVersions": ["0.1"]},
    ),
    ("work-item", {"state": "active", "owner": samples.owner, "selectionBasis": samples.selection_basis}),
    ("work-item", {"state": "failed"}),
]

refused: Final[list[tuple[str, Change, str]]] = [
    ("agent-card", {"protocolVersions": ["0.1", "0.1"]}, "protocolVersions repeats an item; list each item once"),
    ("agent-card", {"endpoints": [{"transport": "wss", "uri": "https://example.org"}]}, "wss://"),
    ("approval", {"approver": samples.agent}, "approver.type is agent; a mission_final Approval needs human"),
    ("approval", {"artifactHashes": []}, "artifactHashes is empty; an approved mission_final names at least one"),
    ("approval", {"kind": "work_execution"}, "workItemId is missing; a work_execution Approval requires it"),
    ("approval", {"decision": "revoked"}, "revokesApprovalId is missing; a revocation requires it"),
    ("approval", {"artifactHashes": [samples.digest] * 2}, "artifactHashes repeats"),
    ("artifact", {"sourceArtifactHashes": [samples.digest] * 2}, "sourceArtifactHashes repeats"),
    ("command", {"sessionEpoch": absent}, "sessionEpoch is missing; an agent's Command requires it"),
    ("command", {"actor": samples.human}, "sessionEpoch is not allowed; a human's Command carries none"),
    ("command", {**agent_command, "actor": samples.human}, "membershipEpoch is missing; a human's Command requires it"),
    (
        "command",
        {"sessionEpoch": absent, "actor": samples.service},
        "membershipEpoch is not allowed; a service's Command",
    ),
    (
        "command",
        {**agent_command, "actor": samples.human, "kind": "mission.terminate"},
        "a human would cancel, needs agent or",
    ),
    ("command", {"kind": "mission.create"}, "actor.type is agent; mission.create needs human"),
    ("command", {"kind": "work.accept_result"}, "coordinatorEpoch is missing; work.accept_result requires it"),
    ("command", {"kind": "mission.terminate"}, "coordinatorEpoch is missing; an agent's mission.terminate"),
    ("command", {"kind": "work.dance"}, "neither a core kind nor an ext.* kind"),
    ("command", {"kind": "ext.missionweaveprotocol.identity.session_open"}, "session_open needs service"),
    ("context-package", {"generatedBy": samples.human}, "generatedBy.type is human; a Context Package needs agent"),
    ("context-package", {"sourceEventRange.eventIds": []}, "length >= 1"),
    ("conversation", {"type": "work_item"}, "primaryWorkItemId is missing"),
    ("conversation", {"type": "restricted"}, "access.mode is group; a restricted Conversation needs restricted"),
    ("conversation", {"access": {"mode": "restricted"}}, "members is missing; restricted access requires it"),
    ("error", {"code": "OOPS"}, "Invalid enum value 'OOPS' - at `$.code`"),
    ("event", {"kind": "work.danced"}, "neither a core kind nor an ext.* kind"),
    ("event", {"sequence": absent}, "sequence is missing; work.started requires it"),
    (
        "event",
        {"kind": "ext.missionweaveprotocol.identity.session_opened"},
        "actor.type is agent; ext.missionweaveprotocol.identity.session_opened",
    ),
    (
        "event",
        {"kind": "ext.missionweaveprotocol.identity.session_opened", "actor": samples.service},
        "groupId is not allowed; ext.missionweaveprotocol.identity.session_opened carries none",
    ),
    ("evidence", {"criterionIds": ["tests", "tests"]}, "criterionIds repeats"),
    (
        "extension-profile",
        {"overridesCoreInvariants": True},
        "overridesCoreInvariants is true; a profile, which may not override the core, needs false",
    ),
    ("extension-profile", {"commandKinds": ["work.start"]}, "an ext.* kind of three or more parts"),
    (
        "first-admission-record",
        {"acceptedBy": samples.human},
        "acceptedBy.type is human; a First-Admission Record needs service",
    ),
    ("group", {"state": "archived"}, "archivedAt is missing; an archived Group requires it"),
    ("group", {"archivedAt": samples.when}, "archivedAt is not allowed; an active Group carries none"),
    ("group-snapshot", {"createdBy": samples.agent}, "createdBy.type is agent; a Group Snapshot needs service"),
    ("group-snapshot", {"eventIds": ["urn:uuid:1"] * 2}, "eventIds repeats"),
    ("lease", {"state": "expired"}, "closedAt is missing; a lease that is expired requires it"),
    ("lease", closed, "closedAt is not allowed; an active lease carries none"),
    ("lease", {**closed, "state": "expired", "closureReason": "\u2003\ufeff"}, "text that is not blank"),
    ("lease", {"renewalCount": 2}, "lastRenewedAt is missing; a renewed lease requires it"),
    ("lease", {"lastRenewedAt": samples.when}, "lastRenewedAt is not allowed; a lease never renewed"),
    ("lease", {"workItemId": absent}, "workItemId is missing; a lease of type execution requires it"),
    ("lease", {"startBy": samples.when}, "startBy is not allowed; a lease of type execution carries none"),
    ("lease", {"leaseType": "ownership"}, "startBy is missing; a lease of type ownership requires it"),
    ("lease", {"leaseType": "coordinator"}, "coordinatorEpoch is missing; a coordinator lease requires it"),
    ("membership", {"activatedAt": absent}, "activatedAt is missing; an active Membership requires it"),
    ("membership", {"state": "provisional"}, "provisionalExpiresAt is missing; a provisional Membership"),
    ("membership", {"state": "ended"}, "endedAt is missing; an ended Membership requires it"),
    ("membership", {"delegationGrants": [samples.grant, samples.grant]}, "delegationGrants repeats"),
    ("membership", {"delegationGrants": [{**samples.grant, "budget": {"toolCallLimit": 1}}]}, "currency is missing"),
    ("membership", {"delegationGrants": [{**samples.grant, "grantedBy": samples.human}]}, "grantedBy.type is human"),
    ("membership", {"scopes": ["group", "group"]}, "scopes repeats"),
    ("message", {"authority": True}, "authority is true; a Message, which never authorises anything, needs false"),
    ("message", {"kind": "redaction", "reason": "Law."}, "targetMessageId is missing; a redaction requires it"),
    ("message", {"mentions": [samples.agent, dict(reversed(samples.agent.items()))]}, "mentions repeats"),
    ("message", {"content": [{"type": "text", "text": "x", "artifactHash": samples.digest}]}, "unknown field"),
    ("mission", {"missionOwner": samples.agent}, "missionOwner.type is agent; a root Mission needs human"),
    (
        "mission",
        {"parent": {"missionId": "a:b", "workItemId": "a:c", "depth": 1}},
        "missionOwner.type is human; a child Mission needs agent",
    ),
    ("mission", {"approvalPolicy.finalHumanApproval": False}, "finalHumanApproval is false; a root Mission needs true"),
    ("mission", {"budget": {}}, "a budget allocates at least one dimension"),
    ("mission", {"budget": {"financialLimit": 3}}, "financialLimit needs currency"),
    ("mission", {"definitionOfDone.0.evidenceRequired": ["failure_report"]}, "names failure_report"),
    ("mission", {"pinnedProfiles": [{"profileUri": "a:b", "majorVersion": 1}] * 2}, "pinnedProfiles repeats"),
    ("websocket-frame", {"frameType": "MESSAGE_DELTA"}, "Invalid value 'MESSAGE_DELTA' - at `$.frameType`"),
    ("websocket-frame", {**hello, "phase": "client_boast"}, "Invalid value 'client_boast' - at `$.phase`"),
    ("work-contract", {"deadline": "tomorrow"}, "Expected `str` that is an RFC 3339 timestamp - at `$.deadline`"),
    ("work-contract", {"dependencyWorkItemIds": ["a:b", "a:b"]}, "dependencyWorkItemIds repeats"),
    ("work-item", {"state": "queued"}, "owner is missing; a WorkItem that is queued requires it"),
    ("work-item", {"state": "queued", "owner": samples.owner}, "selectionBasis is missing"),
    (
        "work-item",
        {"state": "submitted", "owner": samples.owner, "selectionBasis": samples.selection_basis},
        "submission is missing; a WorkItem that is submitted requires it",
    ),
]


@pytest.mark.parametrize("schema", sorted(documents))
def test_tru_1_samples_are_read_and_kept(schema: str) -> None:
    """TRU-1: a valid document comes out as it went in."""
    assert msgspec.json.decode(msgspec.json.encode(read_document(schema, documents[schema]))) == documents[schema]


def test_tru_1_every_schema_has_a_sample() -> None:
    """TRU-1: no kind is left out here."""
    assert set(documents) == schema_names


@pytest.mark.parametrize(("schema", "change"), accepted, ids=str)
def test_tru_1_documents_that_keep_the_rules_are_accepted(schema: str, change: Change) -> None:
    """TRU-1: the other side of every conditional rule."""
    read_document(schema, changed(schema, change))


@pytest.mark.parametrize(("schema", "change", "words"), refused, ids=str)
def test_tru_1_a_broken_rule_is_named_with_its_remedy(schema: str, change: Change, words: str) -> None:
    """TRU-1, ERR-1: the message names the member and what to do."""
    with pytest.raises(msgspec.ValidationError) as fault:
        read_document(schema, changed(schema, change))
    assert words in str(fault.value)


@pytest.mark.parametrize(
    "value",
    [
        {**samples.agent, "\ud800": 1},
        {"type": "\ud800", "id": "a:b"},
        {"type": "agent", "id": "a:\ud800"},
        {"type": "agent", "id": None},
        {"type": "agent"},
        ["agent", "a:b"],
        None,
    ],
    ids=ascii,
)
def test_acc_5_any_misshape_is_one_kind_of_fault(value: Any) -> None:
    """ACC-5: lone surrogates and JSON null are refused as misshapes, without any other exception."""
    with pytest.raises(msgspec.ValidationError):
        read_document("message", {**documents["message"], "author": value})


def test_acc_5_open_json_is_kept_as_it_came() -> None:
    """ACC-5: numbers, nulls and odd texts inside open members are not touched."""
    odd: dict[str, Any] = {"a": None, "b": [1, 0.5, "\x00\ud800"], "c": {"d": {}}, "constraints": 1e300}
    contract = {**samples.contract, "constraints": odd, "extensions": {"urn:x:y": _extension(odd)}}
    read_back = msgspec.to_builtins(read_document("work-contract", contract))
    assert read_back["constraints"] == odd
    assert read_back["extensions"]["urn:x:y"]["data"] == odd
    null = msgspec.to_builtins(
        read_document("work-contract", {**contract, "extensions": {"urn:x:y": _extension(None)}})
    )
    assert null["extensions"]["urn:x:y"]["data"] is None


def _extension(data: Any) -> dict[str, Any]:
    return {"version": "1.0.0", "critical": False, "data": data}


@pytest.mark.parametrize("cost", [0, 1, 18.5, 1e300])
def test_bud_1_numbers_stay_what_they_are(cost: float) -> None:
    """BUD-1: an integral number stays an int, so nothing is rounded on the way in."""
    item = changed("work-item", {"selectionBasis": {**samples.selection_basis, "expectedCost": cost}})
    read_item = read(item, WorkItem)
    assert read_item.selection_basis is not msgspec.UNSET
    assert type(read_item.selection_basis.expected_cost) is type(cost)
    assert read_item.selection_basis.expected_cost == cost


def test_message_content_is_told_apart_by_type() -> None:
    """TRU-1: the parts of a Message are text, an Artifact by hash, or data of a schema."""
    content = [
        {"type": "text", "text": "x"},
        {"type": "artifact_ref", "artifactHash": samples.digest},
        {"type": "data_ref", "schema": "urn:schema:any", "data": None},
    ]
    parts = read(changed("message", {"content": content}), Message).content
    assert [type(part) for part in parts] == [TextPart, ArtifactPart, DataPart]


signers: Final = {
    DocumentKind.APPROVAL: ("approver", "occurredAt"),
    DocumentKind.COMMAND: ("actor", "issuedAt"),
    DocumentKind.CONTEXT_PACKAGE: ("generatedBy", "generatedAt"),
    DocumentKind.EVENT: ("acceptedBy", "occurredAt"),
    DocumentKind.EVIDENCE: ("generatedBy", "createdAt"),
    DocumentKind.EXTENSION_PROFILE: ("approvedBy", "approvedAt"),
    DocumentKind.GROUP_SNAPSHOT: ("createdBy", "createdAt"),
}


@pytest.mark.parametrize("kind", DocumentKind, ids=lambda kind: kind.value)
def test_tru_1_signer_and_protected_time_of_each_kind(kind: DocumentKind) -> None:
    """TRU-1: section 12's table; an Agent Card is any service's, an Artifact its producer's."""
    document = documents[kind.value]
    typed = read(document, document_types[kind.value])
    signer = kind.rule.signer(typed)
    if kind is DocumentKind.AGENT_CARD:
        assert signer is None
        assert kind.rule.protected_time(typed) == document["issuedAt"]
    elif kind is DocumentKind.ARTIFACT:
        assert signer is not None
        assert (signer.type, signer.id) == (ActorType.AGENT, document["producer"]["agentId"])
        assert kind.rule.protected_time(typed) == document["createdAt"]
    else:
        member, time = signers[kind]
        assert msgspec.to_builtins(signer) == document[member]
        assert kind.rule.protected_time(typed) == document[time]
        assert "signature" in msgspec.structs.asdict(typed)


def test_documents_are_values() -> None:
    """MWP-EVT-005: what was accepted cannot be changed in place."""
    card = read(documents["agent-card"], AgentCard)
    with pytest.raises(AttributeError):
        card.status = card.status  # type: ignore[misc]
    assert card == read(documents["agent-card"], AgentCard)
