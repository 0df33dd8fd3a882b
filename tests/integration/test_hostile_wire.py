"""What a stranger may learn over the broker, from an authority that runs as a real process: nothing (TRU-5, ACC-5)."""

import asyncio
import copy
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from nats.aio.client import Client

from contracts import subjects
from contracts.canonical import canonical_bytes
from contracts.documents.common import ActorType
from contracts.payloads.requests import heads_request
from contracts.signature import SigningKey, base64url_bytes, base64url_text, group_order
from ops.bench.workload import create_mission, register_agent
from ops.init import Organization
from services.process.database import connect
from tests.agent_rig import running_stack
from tests.authority_rig import post, rows
from tests.builders import end_key, principal, revoke_key, signing_key
from tests.integration.test_hostile_commands import durable
from tests.reads_rig import Caller, now, planted, read_bytes, serving

answer_seconds = 60.0
audit_seconds = 60.0
"""How long an audit record may take: the authority writes them once a second."""
group = "urn:weavehold:bench:group:0"


def without_time(reply: bytes) -> bytes:
    """A reply with its one member that differs each time, the authority's own clock, cut out."""
    told, count = re.subn(rb'"occurredAt":"[^"]+"', b'"occurredAt":""', reply)
    assert count == 1, reply
    return told


class Wire:
    """A client of a running authority, with keys that are registered and have their various ends."""

    def __init__(self, client: Client, organization: Organization, url: str) -> None:
        self.client = client
        self.organization = organization
        self.url = url
        self.owner = organization.keys.mission_owner
        self.keys = {
            name: SigningKey(f"urn:weavehold:key:{name}", self.owner.principal, hashlib.sha256(name.encode()).digest())
            for name in ("revoked", "retired", "future", "unknown", "elsewhere")
        }

    async def register(self) -> None:
        """Bind the keys in the database, as the registry's Commands would."""
        stranger = SigningKey("urn:weavehold:key:mallory", principal("mallory", ActorType.HUMAN), bytes([3]) * 32)
        self.keys["stranger"] = stranger
        connection = await connect(self.url, name="planting")
        try:
            for name in ("revoked", "retired", "future", "stranger"):
                key = self.keys[name]
                await connection.execute(
                    "INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, public_key,"
                    " valid_from) VALUES (%s, %s, %s, %s, %s, %s)",
                    (
                        *(self.organization.organization_id, key.key_id, key.principal.type.value, key.principal.id),
                        *(key.public_key, now(3_600) if name == "future" else "2020-01-01T00:00:00Z"),
                    ),
                )
            await revoke_key(connection, self.keys["revoked"].key_id, now(-10))
            await end_key(connection, self.keys["retired"].key_id, valid_until=now(-10))
        finally:
            await connection.close()

    async def ask(self, subject: str, raw: bytes) -> bytes:
        return (await self.client.request(subject, raw, timeout=answer_seconds)).data

    async def command(self, raw: bytes) -> bytes:
        return await self.ask(subjects.command_ingress(self.organization.organization_id), raw)

    async def query(self, raw: bytes) -> bytes:
        return await self.ask(subjects.query(self.organization.organization_id), raw)

    async def failures(self, at_least: int) -> list[tuple[str, str, bytes]]:
        """Stage, reason and hash of the audited failures, once there are so many."""
        ends = time.monotonic() + audit_seconds
        while True:
            found = await rows(
                self.url, "SELECT stage, reason, document_sha256 FROM authentication_failure ORDER BY failure_id"
            )
            if len(found) >= at_least or time.monotonic() > ends:
                return [(stage, reason, bytes(digest)) for stage, reason, digest in found]
            await asyncio.sleep(0.1)


@asynccontextmanager
async def wire(organization: Organization, url: str, nats_url: str, folder: Path) -> AsyncIterator[Wire]:
    """A running authority with one Group, and a client of it."""
    async with running_stack(organization, url, nats_url, folder, relay=False) as stack:
        # Answers mean that the process runs.
        await stack.register("ada")
        client = await nats.connect(nats_url)
        try:
            opened = Wire(client, organization, url)
            await opened.register()
            keys = organization.keys
            coordinator = signing_key("coordinator")
            card = register_agent(keys.operator, keys.registry, coordinator, organization.organization_id)
            for raw in (card, create_mission(keys.mission_owner, 0, coordinator.principal.id)):
                assert b'"receipt"' in await opened.command(raw)
            yield opened
        finally:
            await client.close()


Change = Callable[[dict[str, Any], Wire], None]


def signed_by(name: str) -> Change:
    def change(document: dict[str, Any], opened: Wire) -> None:
        key = opened.keys[name]
        # What is found under that name here is another key.
        key_id = opened.owner.key_id if name == "elsewhere" else key.key_id
        document["signature"] = document["signature"] | {"keyId": key_id, "value": key.sign(unsigned_bytes(document))}

    return change


def issued(seconds: float) -> Change:
    def change(document: dict[str, Any], opened: Wire) -> None:
        document["issuedAt"] = now(seconds)
        document["signature"] |= {
            "createdAt": document["issuedAt"],
            "value": opened.owner.sign(unsigned_bytes(document)),
        }

    return change


def with_value(changed: Callable[[bytes], bytes]) -> Change:
    def change(document: dict[str, Any], _opened: Wire) -> None:
        value = base64url_bytes(document["signature"]["value"])
        assert value is not None
        document["signature"]["value"] = base64url_text(changed(value))

    return change


def unsigned_bytes(document: dict[str, Any]) -> bytes:
    return canonical_bytes({name: member for name, member in document.items() if name != "signature"})


def plus_order(value: bytes) -> bytes:
    return value[:32] + (int.from_bytes(value[32:], "little") + group_order).to_bytes(32, "little")


def dirty(document: dict[str, Any], _opened: Wire) -> None:
    """Unused bits set: not the one spelling of these bytes, whatever these are."""
    document["signature"]["value"] = document["signature"]["value"][:-1] + "B"


distrusted: dict[str, tuple[str, Change]] = {
    "unknown-key": ("key-resolution", signed_by("unknown")),
    "revoked-key": ("key-resolution", signed_by("revoked")),
    "retired-key": ("key-resolution", signed_by("retired")),
    "key-not-valid-yet": ("key-resolution", signed_by("future")),
    "wrong-principal": ("key-resolution", signed_by("stranger")),
    "key-id-of-another": ("signature", signed_by("elsewhere")),
    "wrong-signature": ("signature", with_value(lambda value: value[:40] + bytes([value[40] ^ 1]) + value[41:])),
    "s-plus-order": ("signature-envelope", with_value(plus_order)),
    "r-not-reduced": ("signature-envelope", with_value(lambda value: b"\xff" * 32 + value[32:])),
    "short-signature": ("signature-envelope", with_value(lambda value: value[:63])),
    "malformed-base64url": ("signature-envelope", dirty),
    "other-time": ("signature-envelope", lambda document, _: document["signature"].update(createdAt=now(1))),
    "too-old": ("freshness", issued(-301)),
    "too-early": ("freshness", issued(3_600)),
}


def damaged(raw: bytes, change: Change, opened: Wire) -> bytes:
    document = copy.deepcopy(msgspec.json.decode(raw))
    change(document, opened)
    return canonical_bytes(document)


async def plant_other_admission(opened: Wire, raw: bytes) -> None:
    """A record that says this content was first admitted as an Event."""
    await rows(
        opened.url,
        "INSERT INTO admission (organization_id, signing_hash, admission_record_id, document_kind, key_id,"
        " principal_type, principal_id, trusted_accepted_at, accepted_by)"
        " VALUES (%s, %s, 'urn:uuid:planted', 'event', %s, 'human', %s, weavehold_clock(), %s) RETURNING 1",
        opened.organization.organization_id,
        hashlib.sha256(unsigned_bytes(msgspec.json.decode(raw))).digest(),
        *(opened.owner.key_id, opened.owner.principal.id, opened.organization.keys.authority.principal.id),
    )


def with_spoiled_card(opened: Wire) -> bytes:
    """A validly signed Command around an Agent Card whose own signature is another's."""
    keys, newcomer = opened.organization.keys, signing_key("newcomer")
    raw = register_agent(keys.operator, keys.registry, newcomer, opened.organization.organization_id)
    document = msgspec.json.decode(raw)
    document["payload"]["card"]["signature"]["value"] = document["signature"]["value"]
    document["signature"]["value"] = keys.operator.sign(unsigned_bytes(document))
    return canonical_bytes(document)


async def test_a_distrusted_command_learns_nothing(
    database_url: str, nats_url: str, organization: Organization, tmp_path: Path
) -> None:
    """TRU-5, TRU-4, TRU-6, RULE-06: one answer, byte for byte; nothing kept; stage and reason in the audit alone."""
    async with wire(organization, database_url, nats_url, tmp_path) as opened:
        honest = post(organization)
        raws = {name: damaged(post(organization), change, opened) for name, (_, change) in distrusted.items()}
        raws["admitted-otherwise"] = post(organization)
        await plant_other_admission(opened, raws["admitted-otherwise"])
        raws["document-inside"] = with_spoiled_card(opened)
        before = await durable(database_url)
        replies = {name: without_time(await opened.command(raw)) for name, raw in raws.items()}
        failures = await opened.failures(len(raws))
        assert await durable(database_url) == before
        assert b'"receipt"' in await opened.command(honest)
    [told] = set(replies.values())
    assert msgspec.json.decode(told)["error"] == {
        "code": "AUTH_INVALID_SIGNATURE",
        "message": "signed document rejected",
        "retryable": False,
        "occurredAt": "",
    }
    stages = [stage for stage, _ in distrusted.values()] + ["admission", "signature"]
    assert sorted(stage for stage, _, _ in failures) == sorted(stages)
    assert all(reason for _, reason, _ in failures)
    assert len({digest for _, _, digest in failures}) == len(raws)


async def test_a_distrusted_read_and_a_failed_proof_learn_nothing(
    database_url: str, nats_url: str, organization: Organization, tmp_path: Path
) -> None:
    """TRU-5, TRU-6: the same for signed reads, and for the handshake with its own one answer."""
    async with wire(organization, database_url, nats_url, tmp_path) as opened:
        raws = [
            damaged(
                read_bytes(organization.organization_id, heads_request, {"groupIds": [group]}, opened.owner),
                change,
                opened,
            )
            for _, change in distrusted.values()
        ]
        replies = {without_time(await opened.query(raw)) for raw in raws}
        read_failures = await opened.failures(len(raws))
        proofs = {without_time(reply) for reply in await failed_proofs(opened)}
        failures = await opened.failures(len(raws) + 6)
    [told], [proof] = replies, proofs
    assert b'"code":"AUTH_INVALID_SIGNATURE","message":"signed document rejected"' in told
    assert b'"code":"AUTH_INVALID_SIGNATURE","message":"session proof rejected"' in proof
    assert [stage for stage, _, _ in read_failures] == [stage for stage, _ in distrusted.values()]
    assert [stage for stage, _, _ in failures[len(raws) :]] == [
        *["key-resolution"] * 3,
        *["signature"] * 2,
        "challenge",
    ]


async def failed_proofs(opened: Wire) -> list[bytes]:
    """An unknown Agent, a revoked key, a person's key, two bad signatures, a challenge answered twice."""
    organization_id = opened.organization.organization_id
    ada = signing_key("coordinator")
    replies = []

    async def ask(caller: Caller, challenge: dict[str, Any], **other: Any) -> None:
        replies.append(await opened.ask(caller.subject, msgspec.json.encode(caller.proof(challenge, **other))))

    for key in (signing_key("nobody"), opened.keys["revoked"], opened.owner):
        caller = Caller(opened.client, organization_id, key)
        await ask(caller, await caller.challenge())
    caller = Caller(opened.client, organization_id, ada)
    await ask(caller, await caller.challenge(), challengeSignature=base64url_text(bytes(64)))
    twice = await caller.challenge()
    await ask(caller, twice, challengeSignature="AB")
    await ask(caller, twice)
    return replies


async def asked(raws: list[bytes], subject: str, database_url: str, nats_url: str, folder: Path) -> list[bytes]:
    """The replies of an authority's read side to these requests."""
    async with planted(database_url, folder) as org, serving(database_url, nats_url, org) as authority:
        return [(await authority.nc.request(subject, raw, timeout=answer_seconds)).data for raw in raws]


handshake = subjects.session("urn:weavehold:organization:test")


@pytest.mark.parametrize("place", ["", "clientInit", "clientProof"])
async def test_a_handshake_with_a_lone_surrogate_is_refused_by_name(
    place: str, database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """ACC-5, ERR-1, RULE-29: a name that no UTF-8 can write is the sender's fault, not one of the authority's."""
    step = '{"\\ud800":1}'
    raw = f'{{"{place}":{step}}}' if place else step
    [reply] = await asked([raw.encode()], handshake, database_url, nats_url, tmp_path)
    code = msgspec.json.decode(reply)["error"]["code"]
    assert code in ("SCHEMA_VALIDATION_FAILED", "PROTOCOL_VIOLATION")


@pytest.mark.parametrize(
    "challenge",
    [
        {"challengeId": '"\\u0000"'},
        {"challengeId": '"\\ud800"'},
        {"\\ud800": "1"},
    ],
    ids=["nul", "surrogate", "surrogate-name"],
)
async def test_a_made_up_challenge_gets_the_one_answer(
    challenge: dict[str, str], database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """TRU-5, ACC-5: whatever a proof calls its challenge, the answer is that of any failed proof."""
    caller = Caller(Client(), "urn:weavehold:organization:test", signing_key("nobody"))
    texts = {name: f'"{value}"' for name, value in caller.identity.items()}
    members = texts | {"challengeId": '"x"', "expiresAt": '"x"', "protocolVersion": '"0.1"', "serverNonce": '"AA"'}
    made_up = "{" + ",".join(f'"{name}":{value}' for name, value in (members | challenge).items()) + "}"
    proof = caller.proof({"serverNonce": "AA", "challenge": base64url_text(made_up.encode())})
    [reply] = await asked([msgspec.json.encode(proof)], handshake, database_url, nats_url, tmp_path)
    error = msgspec.json.decode(reply)["error"]
    assert (error["code"], error["message"]) == ("AUTH_INVALID_SIGNATURE", "session proof rejected")


@pytest.mark.parametrize("content", ["1e400", '"\\ud800"'])
async def test_what_has_no_canonical_bytes_does_not_tell_whether_a_key_exists(
    content: str, database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """TRU-5: without any secret, for a key ID and a Principal that someone guesses: one answer, known or unknown."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        replies = []
        for key in (await org.add_agent("worker"), signing_key("nobody")):
            raw = read_bytes(org.id, heads_request, {"groupIds": [content]}, key)
            spoiled = raw.replace(msgspec.json.encode(content), content.encode())
            assert spoiled != raw
            replies.append((await authority.nc.request(subjects.query(org.id), spoiled, timeout=answer_seconds)).data)
    known, unknown = map(without_time, replies)
    assert known == unknown
