"""What the tests of signed reads share: planted Organizations, Agents, Groups and Memberships, and who asks."""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from nats.aio.client import Client
from psycopg import AsyncConnection

from contracts import subjects
from contracts.canonical import canonical_bytes
from contracts.documents.common import Actor
from contracts.documents.membership import Membership
from contracts.entities import MembershipRecord
from contracts.identifiers import SessionEpoch
from contracts.rejection import Rejection
from contracts.signature import SigningKey, base64url_bytes, base64url_text
from contracts.timestamps import format_timestamp
from ops.init import Organization, initialize
from services.authority.freshness import Freshness
from services.authority.key_cache import KeyRegistryCache
from services.authority.read_request import ReadTrust
from services.authority.serve_requests import ServedRequests, serve
from services.authority.serve_session import SessionOpened
from services.process import broker
from services.process.database import Pool, connect, open_pool
from services.process.metrics import Metrics
from tests.builders import BuiltEvent, build_command, build_history, end_key, insert_history, signing_key

reply_seconds = 60.0


class PlantedOrganization:
    """One Organization in a database; rows are written directly, as accepted transitions would leave them."""

    def __init__(self, connection: AsyncConnection[Any], organization: Organization) -> None:
        self.connection = connection
        self.organization = organization
        self.id = organization.organization_id
        self.incarnation = organization.incarnation
        self._positions: dict[int, int] = {}

    async def add_agent(self, name: str, *, session_epoch: int = 1, valid_until: str | None = None) -> SigningKey:
        """A registered Agent with a key and a session."""
        key = signing_key(name)
        await self.add_key(key, valid_until=valid_until)
        await self.connection.execute(
            "INSERT INTO agent (organization_id, agent_id, card_version, card, session_epoch) "
            "VALUES (%s, %s, 1, '', %s)",
            (self.id, key.principal.id, session_epoch),
        )
        return key

    async def add_key(
        self, key: SigningKey, *, valid_from: str = "2020-01-01T00:00:00Z", valid_until: str | None = None
    ) -> None:
        """Register a key for its Principal."""
        await self.connection.execute(
            "INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, public_key, valid_from)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            (self.id, key.key_id, key.principal.type.value, key.principal.id, key.public_key, valid_from),
        )
        if valid_until is not None:
            await end_key(self.connection, key.key_id, valid_until=valid_until)

    async def set_session(self, key: SigningKey, epoch: int) -> None:
        """Another session of an Agent."""
        await self.connection.execute(
            "UPDATE agent SET session_epoch = %s WHERE organization_id = %s AND agent_id = %s",
            (epoch, self.id, key.principal.id),
        )

    async def plant_group(
        self, group_id: str, count: int, *, shard_id: int = 1, size: int | None = None
    ) -> list[BuiltEvent]:
        """A Group with `count` Events (payload text of about `size` bytes) at the end of its shard's log."""
        await self.connection.execute(
            "INSERT INTO mission_group (organization_id, group_id, shard_id) VALUES (%s, %s, %s)",
            (self.id, group_id, shard_id),
        )
        return await self._append(group_id, count, shard_id, size, None)

    async def append(
        self, group_id: str, after: BuiltEvent, count: int, *, shard_id: int = 1, size: int | None = None
    ) -> list[BuiltEvent]:
        """More Events of a planted Group."""
        return await self._append(group_id, count, shard_id, size, after)

    async def _append(
        self, group_id: str, count: int, shard_id: int, size: int | None, after: BuiltEvent | None
    ) -> list[BuiltEvent]:
        built = build_history(
            self.id,
            group_id,
            count,
            self.organization.keys.authority,
            incarnation=self.incarnation,
            payload=None if size is None else lambda sequence: {"text": f"{sequence}:" + "x" * size},
            start=after.mark if after else None,
        )
        position = self._positions.get(shard_id, 0)
        await insert_history(self.connection, shard_id, built, position + 1)
        self._positions[shard_id] = position + count
        return built

    async def plant_membership(
        self, group_id: str, member: Actor, *, state: str = "active", visibility: int = 0, epoch: int = 1
    ) -> None:
        """The entity row of a Membership; planting it again replaces it."""
        document = {
            "membershipId": f"urn:weavehold:membership:{secrets.token_hex(8)}",
            "missionId": f"{group_id}:mission",
            "groupId": group_id,
            "member": {"type": member.type.value, "id": member.id},
            "role": "worker",
            "state": state,
            "membershipEpoch": epoch,
            "scopes": ["group"],
            "visibilityStartSequence": visibility,
            "grantedAt": "2026-07-15T08:00:00Z",
            "activatedAt": "2026-07-15T08:00:00Z",
        }
        if state == "ended":
            document["endedAt"] = "2026-07-15T09:00:00Z"
        if state == "provisional":
            document |= {"provisionalExpiresAt": "2036-07-15T09:00:00Z", "contextPackageId": f"{group_id}:context"}
        record = MembershipRecord(membership=msgspec.convert(document, Membership))
        await self.connection.execute(
            "INSERT INTO entity (organization_id, group_id, kind, entity_id, revision, body) "
            "VALUES (%s, %s, 'membership', %s, %s, %s) ON CONFLICT (organization_id, group_id, kind, entity_id) "
            "DO UPDATE SET revision = excluded.revision, body = excluded.body",
            (self.id, group_id, member.id, epoch, canonical_bytes(record)),
        )

    async def failures(self) -> list[tuple[str, str]]:
        """(stage, reason) of every audited authentication failure."""
        cursor = await self.connection.execute(
            "SELECT stage, reason FROM authentication_failure WHERE organization_id = %s ORDER BY failure_id",
            (self.id,),
        )
        return await cursor.fetchall()


@asynccontextmanager
async def planted(database_url: str, directory: Path, name: str = "test") -> AsyncIterator[PlantedOrganization]:
    """An Organization of this name with 2 shards."""
    connection = await connect(database_url, name="planting")
    try:
        organization = await initialize(connection, name=name, keys_directory=directory / name, shard_count=2)
        yield PlantedOrganization(connection, organization)
    finally:
        await connection.close()


class Authority:
    """The read side of one authority process: its broker connection, pool, keys and what it serves."""

    def __init__(self, nc: Client, pool: Pool, keys: KeyRegistryCache, served: ServedRequests) -> None:
        self.nc = nc
        self.pool = pool
        self.keys = keys
        self.served = served


class SessionLane:
    """Stands for the Organization shard's lane: raises the epoch in the database, or refuses."""

    def __init__(self, planted_organization: PlantedOrganization) -> None:
        self._planted = planted_organization
        self.opened: list[tuple[str, str]] = []
        self.refusal: Rejection | None = None

    async def open(self, agent_id: str, key_id: str) -> SessionOpened | Rejection:
        """The next Session Epoch of an Agent."""
        if self.refusal is not None:
            return self.refusal
        self.opened.append((agent_id, key_id))
        cursor = await self._planted.connection.execute(
            "UPDATE agent SET session_epoch = session_epoch + 1 WHERE organization_id = %s AND agent_id = %s "
            "RETURNING session_epoch",
            (self._planted.id, agent_id),
        )
        [(epoch,)] = await cursor.fetchall()
        return SessionOpened(session_epoch=SessionEpoch(epoch), opened_at=now())


@asynccontextmanager
async def serving(
    database_url: str, nats_url: str, organization: PlantedOrganization, lane: SessionLane | None = None
) -> AsyncIterator[Authority]:
    """The read side of one authority process, with connections of its own."""
    nc = await broker.connect(nats_url, name="authority-test")
    pool = await open_pool(database_url, name="authority-test", maximum=8)
    metrics = Metrics("authority")
    keys = KeyRegistryCache(pool, organization.id)
    try:
        opener = (lane or SessionLane(organization)).open
        served = await serve(
            nc,
            pool,
            ReadTrust(organization_id=organization.id, keys=keys, freshness=Freshness(), registry_fault=lambda: None),
            signing_key=lambda: organization.organization.keys.authority,
            open_session=opener,
            metrics=metrics,
        )
        await nc.flush()
        yield Authority(nc, pool, keys, served)
        await served.close()
    finally:
        metrics.close()
        await nc.close()
        await pool.close()


def now(seconds: float = 0.0) -> str:
    """The clock of this machine, moved by some seconds."""
    return format_timestamp(datetime.now(UTC) + timedelta(seconds=seconds))


def read_bytes(organization_id: str, kind: str, payload: Mapping[str, Any], key: SigningKey, **members: Any) -> bytes:
    """A signed read as a client sends it."""
    given: dict[str, Any] = {"issued_at": now(), "action_id": f"urn:uuid:{secrets.token_hex(16)}"} | members
    return build_command(kind, payload, key, group_id=organization_id, **given).raw


class Asker:
    """One Principal that asks."""

    def __init__(self, nc: Client, organization_id: str, key: SigningKey, session_epoch: int = 1) -> None:
        self._nc = nc
        self._organization_id = organization_id
        self._key = key
        self._session_epoch = session_epoch

    async def raw(self, subject: str, kind: str, payload: Mapping[str, Any], **members: Any) -> bytes:
        """The reply's bytes."""
        given: dict[str, Any] = {"session_epoch": self._session_epoch} | members
        request = read_bytes(self._organization_id, kind, payload, self._key, **given)
        return (await self._nc.request(subject, request, timeout=reply_seconds)).data

    async def ask(self, subject: str, kind: str, payload: Mapping[str, Any], **members: Any) -> dict[str, Any]:
        """The reply, decoded."""
        return msgspec.json.decode(await self.raw(subject, kind, payload, **members))


class Caller:
    """A client that takes the handshake step by step."""

    def __init__(self, nc: Client, organization_id: str, key: SigningKey) -> None:
        self.nc = nc
        self.subject = subjects.session(organization_id)
        self.key = key
        self.identity = {
            "agentId": key.principal.id,
            "keyId": key.key_id,
            "clientNonce": base64url_text(secrets.token_bytes(32)),
        }

    async def ask(self, request: Any) -> dict[str, Any]:
        """One request and its reply."""
        raw = request if isinstance(request, bytes) else msgspec.json.encode(request)
        return msgspec.json.decode((await self.nc.request(self.subject, raw, timeout=reply_seconds)).data)

    async def challenge(self) -> dict[str, Any]:
        """Step one."""
        return (await self.ask({"clientInit": self.identity | {"supportedVersions": ["0.1"]}}))["serverChallenge"]

    def proof(self, challenge: dict[str, Any], /, **other: Any) -> dict[str, Any]:
        """Step two, not sent yet."""
        signed = base64url_bytes(challenge["challenge"])
        assert signed is not None
        members = self.identity | {
            "serverNonce": challenge["serverNonce"],
            "challenge": challenge["challenge"],
            "challengeSignature": self.key.sign(signed),
        }
        return {"clientProof": members | other}


def code_of(reply: Mapping[str, Any]) -> str | None:
    """The error code of a reply, None for an answer."""
    return reply["error"]["code"] if "error" in reply else None
