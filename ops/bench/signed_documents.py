"""Signed Commands of many kinds, made beforehand, for benchmarks that read documents and start nothing.

No two are alike and no two share a time, so that nothing that was computed for one serves another. Most travel as the
clients here send them, in canonical bytes. One of fifteen is like the published test vectors: indented, unsorted, with
binary64 numbers, texts beyond ASCII and names whose order differs between UTF-8 and UTF-16.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Any, Final

from msgspec import Struct

from contracts.bounds import command_bytes_max
from contracts.canonical import parse_strict
from contracts.documents.common import Actor, ActorType
from contracts.signature import SigningKey, base64url_text, sign_document
from contracts.timestamps import format_timestamp, parse_timestamp
from contracts.verification import RegisteredKey

agents: Final = 5
"""Agents that sign, each with its own key, beside one human and one service."""
_first: Final = parse_timestamp("2026-07-15T08:00:00Z")
_step: Final = timedelta(milliseconds=137)
_deadline: Final = "2026-08-31T18:00:00.000000Z"
_sentences: Final = (
    "The supplier confirmed the revised delivery window for all three sites. ",
    "Please compare the totals of the second sheet with the invoice before you publish. ",
    "Die Prüfung der Größenangaben ist für Köln und Zürich abgeschlossen. ",
    'The reviewer wrote "accepted, with two remarks" and left the rest open.\n',
    "東京の担当者は明日の朝に回答します。",
)

type Document = dict[str, Any]


class SignedCommands(Struct, frozen=True, kw_only=True):
    """Commands as bytes, and the registered keys by key ID."""

    raws: list[bytes]
    keys: Mapping[str, RegisteredKey]


class Registry:
    """The keys of a benchmark, looked up in a dict. A KeyResolver."""

    def __init__(self, keys: Mapping[str, RegisteredKey]) -> None:
        """`keys` are by key ID."""
        self.resolve = keys.get


class _Maker:
    """Makes one Command after another; the same calls always give the same bytes."""

    def __init__(self) -> None:
        self._random = Random(2026)  # noqa: S311 - varied, not secret
        self._made = 0
        self._agents = [_key(ActorType.AGENT, f"bench-{number}") for number in range(agents)]
        self._human = _key(ActorType.HUMAN, "bench-owner")
        self._service = _key(ActorType.SERVICE, "registry")

    @property
    def keys(self) -> list[SigningKey]:
        """Who signs."""
        return [*self._agents, self._human, self._service]

    def command(self, kinds: Sequence["_Kind"]) -> bytes:
        """The next Command, of the next of these kinds."""
        self._made += 1
        return kinds[self._made % len(kinds)](self)

    def _id(self, name: str) -> str:
        return f"urn:weavehold:bench:{name}:{self._random.getrandbits(48):012x}"

    def _uuid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        return f"urn:uuid:{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"

    def _hash(self) -> str:
        return f"sha256:{self._random.getrandbits(256):064x}"

    def _text(self, sentences: int) -> str:
        return "".join(self._random.choices(_sentences, k=sentences))

    def _time(self) -> str:
        return format_timestamp(_first + self._made * _step)

    def _agent(self) -> SigningKey:
        return self._agents[self._made % agents]

    def _envelope(self, kind: str, key: SigningKey, payload: Document, **members: Any) -> Document:
        document: Document = {
            "protocolVersion": "0.1",
            "actionId": self._uuid(),
            "actor": _actor(key),
            "kind": kind,
            "correlationId": self._uuid(),
            "issuedAt": self._time(),
            "payload": payload,
        }
        if key.principal.type is not ActorType.SERVICE:
            document["groupId"] = self._id("group")
        if key.principal.type is ActorType.AGENT:
            document |= {"sessionEpoch": 3, "membershipEpoch": 1 + self._random.randrange(9)}
        return document | members

    def _signed(self, kind: str, key: SigningKey, payload: Document, **members: Any) -> bytes:
        document = self._envelope(kind, key, payload, **members)
        return sign_document(document, key, document["issuedAt"])

    def _part(self, document: Document, key: SigningKey, protected_time: str) -> Document:
        """A document signed for itself that travels in a payload."""
        part: Document = parse_strict(sign_document(document, key, document[protected_time]), command_bytes_max)
        return part

    def message_post(self) -> bytes:
        """From one sentence to some paragraphs."""
        content = [{"type": "text", "text": self._text(1 + self._random.randrange(20))}]
        payload = {"messageId": self._uuid(), "conversationId": self._id("conversation"), "content": content}
        return self._signed("message.post", self._agent(), payload, expectedRevision=self._random.randrange(5_000))

    def mission_create(self) -> bytes:
        """By a human."""
        payload = {
            "missionId": self._id("mission"),
            "groupId": self._id("group"),
            "coordinatorId": self._agent().principal.id,
            "title": self._text(1),
            "objective": self._text(8),
            "definitionOfDone": [self._criterion(name) for name in ("complete", "reviewed")],
            "deadline": _deadline,
            "budget": {"modelTokenLimit": 1_000_000 + self._made, "toolCallLimit": 500},
        }
        return self._signed("mission.create", self._human, payload)

    def membership_change(self) -> bytes:
        """The smallest of a human."""
        payload = {"principal": _actor(self._agent()), "role": "participant"}
        return self._signed("membership.change", self._human, payload, membershipEpoch=1)

    def work_authorize(self) -> bytes:
        """A complete Work Contract."""
        contract = {
            "contractVersion": 1,
            "goal": self._text(4),
            "requiredDeliverables": [
                {
                    "deliverableId": "report",
                    "description": self._text(2),
                    "mediaType": "text/markdown",
                    "schema": "urn:weavehold:schema:report",
                }
            ],
            "acceptanceCriteria": [self._criterion(name) for name in ("complete", "sources", "reviewed")],
            "inputArtifacts": [self._hash(), self._hash()],
            "dependencyWorkItemIds": [],
            "allowedResources": [{"resource": self._id("table"), "operations": ["read"]}],
            "requiredCapabilities": [{"id": "report.writing", "version": "1.0.0"}],
            "deadline": _deadline,
            "requestedUrgency": "normal",
            "businessImpact": self._text(1),
            "retryPolicy": {"maxAttempts": 3, "backoff": "exponential", "maxDelay": "PT5M", "retryableFailures": []},
            "budget": {"modelTokenLimit": 200_000},
            "sideEffectRisk": "none",
            "executionApproval": "not_required",
        }
        payload = {"workItemId": self._id("work-item"), "contract": contract}
        return self._signed("work.authorize", self._agent(), payload, coordinatorEpoch=2)

    def work_offer(self) -> bytes:
        """To several candidates."""
        payload = {
            "workItemId": self._id("work-item"),
            "candidateAgentIds": [key.principal.id for key in self._agents],
            "selectionBasis": {"capabilities": ["report.writing"], "reason": self._text(1)},
        }
        return self._signed("work.offer", self._agent(), payload, coordinatorEpoch=2)

    def work_accept_offer(self) -> bytes:
        """Ownership for a time."""
        payload = {"workItemId": self._id("work-item"), "ownershipLeaseSeconds": 900, "startBySeconds": 300}
        return self._signed("work.accept_offer", self._agent(), payload)

    def work_start(self) -> bytes:
        """The smallest of an Agent."""
        item = self._id("work-item")
        return self._signed("work.start", self._agent(), {"workItemId": item, "ownershipEpoch": 1}, workItemId=item)

    def lease_renew(self) -> bytes:
        """The most frequent of a Worker."""
        payload = {
            "workItemId": self._id("work-item"),
            "ownershipEpoch": 1,
            "executionLeaseId": self._uuid(),
            "leaseSeconds": 300,
        }
        return self._signed("ext.missionweaveprotocol.core.work_execution_lease_renew", self._agent(), payload)

    def work_checkpoint(self) -> bytes:
        """Progress of some milestones."""
        item = self._id("work-item")
        checkpoint = {
            "phase": "drafting",
            "completedMilestones": [f"section {number}" for number in range(self._random.randrange(1, 12))],
            "nextStep": self._text(1),
            "stateArtifactHash": self._hash(),
            "createdAt": self._time(),
        }
        payload = {"ownershipEpoch": 1, "executionLeaseId": self._uuid(), "checkpoint": checkpoint}
        return self._signed("work.checkpoint", self._agent(), payload, workItemId=item)

    def artifact_publish(self) -> bytes:
        """A signed document within a signed document."""
        key, item = self._agent(), self._id("work-item")
        manifest = {
            "artifactId": self._id("artifact"),
            "contentHash": self._hash(),
            "uri": f"urn:weavehold:blob:{self._hash()}",
            "sizeBytes": self._random.randrange(1, 2**31),
            "mediaType": "text/markdown",
            "schemaUri": "urn:weavehold:schema:report",
            "producer": {
                "agentId": key.principal.id,
                "agentCardVersion": 1,
                "capabilities": [{"id": "report.writing", "version": "1.0.0"}],
            },
            "missionId": self._id("mission"),
            "groupId": self._id("group"),
            "workItemId": item,
            "sourceArtifactHashes": [self._hash(), self._hash()],
            "toolVersions": [{"name": "pandoc", "version": "3.2"}],
            "modelVersions": [{"provider": "example", "model": "writer", "version": "2026-05"}],
            "classification": "internal",
            "createdAt": self._time(),
        }
        payload = {"artifact": self._part(manifest, key, "createdAt"), "ownershipEpoch": 1}
        return self._signed("artifact.publish", key, payload | {"executionLeaseId": self._uuid()}, workItemId=item)

    def work_submit(self) -> bytes:
        """With Evidence, signed for itself."""
        key, item = self._agent(), self._id("work-item")
        evidence = {
            "evidenceId": self._id("evidence"),
            "missionId": self._id("mission"),
            "groupId": self._id("group"),
            "workItemId": item,
            "type": "reviewer_assessment",
            "subject": {"type": "work_item", "id": item},
            "criterionIds": ["complete", "sources"],
            "method": self._text(2),
            "result": "passed",
            "details": {"checked": self._random.randrange(90), "remarks": [self._text(1)]},
            "artifactHashes": [self._hash()],
            "generatedBy": _actor(key),
            "createdAt": self._time(),
        }
        payload = {
            "ownershipEpoch": 1,
            "executionLeaseId": self._uuid(),
            "artifactIds": [self._id("artifact")],
            "evidence": [self._part(evidence, key, "createdAt")],
        }
        return self._signed("work.submit", key, payload, workItemId=item)

    def mission_approve(self) -> bytes:
        """With an Approval, signed for itself."""
        approval = {
            "approvalId": self._id("approval"),
            "kind": "mission_final",
            "decision": "approved",
            "missionId": self._id("mission"),
            "groupId": self._id("group"),
            "missionRevision": self._random.randrange(1, 90),
            "artifactHashes": [self._hash(), self._hash()],
            "acceptancePolicyVersion": "1.0.0",
            "approver": _actor(self._human),
            "comments": self._text(2),
            "conditions": [],
            "occurredAt": self._time(),
        }
        payload = {"approval": self._part(approval, self._human, "occurredAt")}
        return self._signed("mission.approve", self._human, payload, membershipEpoch=1)

    def request_replay(self) -> bytes:
        """A signed read."""
        payload = {"groupId": self._id("group"), "after": self._random.randrange(90_000), "limitBytes": 65_536}
        return self._signed("ext.weavehold.request.replay", self._agent(), payload)

    def session_open(self) -> bytes:
        """Of a service, without any epoch."""
        payload = {"agentId": self._agent().principal.id, "keyId": self._agent().key_id}
        return self._signed("ext.missionweaveprotocol.identity.session_open", self._service, payload)

    def like_a_published_vector(self) -> bytes:
        """Everything that canonical bytes have rules for, in bytes that are not canonical."""
        data = {
            "array": [3, 2, 1],
            "large": 1e30,
            "maxSafeInteger": 2**53 - 1,
            "negativeZero": -0.0,
            "nested": {"signature": "a nested one is covered", "text": "Résumé 東京 🚀"},
            "nothing": None,
            "tiny": 1e-7,
            "\ue000": "bmp-private-use",
            "\U0001f600": "supplementary-plane",
        }
        key, item = self._agent(), self._id("work-item")
        document = self._envelope(
            "mission.submit_for_approval",
            key,
            {"artifactHashes": [self._hash()], "signature": "the payload's is covered"},
            coordinatorEpoch=4,
            conversationId=self._id("conversation"),
            workItemId=item,
            expectedRevision=self._made,
            causedByEventId=self._uuid(),
            extensions={self._id("extension"): {"version": "1.0.0", "critical": False, "data": data}},
        )
        sign_document(document, key, document["issuedAt"])
        return json.dumps(document, ensure_ascii=False, indent=2).encode()

    def _criterion(self, name: str) -> Document:
        return {"criterionId": name, "description": self._text(1), "evidenceRequired": ["human_review"]}


type _Kind = Callable[[_Maker], bytes]

_plain_kinds: Final[tuple[_Kind, ...]] = (
    _Maker.message_post,
    _Maker.mission_create,
    _Maker.membership_change,
    _Maker.work_authorize,
    _Maker.work_offer,
    _Maker.work_accept_offer,
    _Maker.work_start,
    _Maker.lease_renew,
    _Maker.work_checkpoint,
    _Maker.artifact_publish,
    _Maker.work_submit,
    _Maker.mission_approve,
    _Maker.request_replay,
    _Maker.session_open,
)


def sign_commands(count: int) -> SignedCommands:
    """`count` Commands of fifteen kinds in turns, signed by the keys of five Agents, a human and a service."""
    return _sign(count, (*_plain_kinds, _Maker.like_a_published_vector))


def sign_plain_commands(count: int) -> SignedCommands:
    """The same without the last kind, which is like the published vectors."""
    return _sign(count, _plain_kinds)


def _sign(count: int, kinds: Sequence[_Kind]) -> SignedCommands:
    maker = _Maker()
    return SignedCommands(
        raws=[maker.command(kinds) for _ in range(count)],
        keys={
            key.key_id: RegisteredKey(
                key_id=key.key_id,
                principal=key.principal,
                public_key=key.public_key,
                valid_from=f"2026-0{1 + number % 6}-01T00:00:00Z",
                valid_until="2027-01-01T00:00:00+01:00" if number % 2 else None,
            )
            for number, key in enumerate(maker.keys)
        },
    )


def _actor(key: SigningKey) -> Document:
    return {"type": key.principal.type.value, "id": key.principal.id}


def _key(kind: ActorType, name: str) -> SigningKey:
    identifier = f"urn:weavehold:{kind.value}:{name}"
    seed = hashlib.sha256(identifier.encode()).digest()
    return SigningKey(f"urn:weavehold:key:{base64url_text(seed[:12])}", Actor(type=kind, id=identifier), seed)
