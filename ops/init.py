"""`weavehold init`: one Organization with its shards, its first incarnation, and its first keys (RULE-29).

The key files are written first, the database rows in one transaction after them, and the trust anchors last. A crash in
between leaves what the next run takes up or removes. Running it again changes nothing. Several Organizations may share
a folder of keys: what is read there and written again is nobody else's meanwhile.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from contracts import service_principals
from contracts.documents.common import Actor, ActorType
from contracts.epochs import incarnation_name
from contracts.key_registry import KeyBinding, RegistryEvidence
from contracts.signature import SigningKey, algorithm, base64url_text
from contracts.timestamps import format_timestamp
from ops.command_fault import CommandFault, UsageFault
from ops.durable_file import remove_drafts, replace_durably
from ops.folder_lock import FolderInUse, alone_in, poll_seconds
from services.feed.trust_anchors import AnchorsFault, TrustAnchors, anchors_file_name, load_anchors
from services.process.database import Connection
from services.process.statements import load

shard_count_default: Final = 4
"""Shards of an embedded Organization; production takes 64."""
shard_count_max: Final = 1024
key_valid_before_seconds: Final = 600
"""Seconds before its registration from which a first key is valid: its holder's clock may be behind the database's, and
freshness allows 300."""
folder_wait_seconds: Final = 15.0
"""Seconds to wait for another `init`, or a rotation, in the same folder of keys."""
organization_prefix: Final = "urn:weavehold:organization:"


default_name: Final = "local"
"""The name of an Organization that nobody has named."""


class InitializationFault(CommandFault):
    """What cannot be initialized; the message names the thing, the value and the remedy."""


class UnusableChoice(UsageFault):
    """A name or number that no Organization can have."""


@dataclass(frozen=True, kw_only=True)
class FirstKeys:
    """The private keys that `init` makes; the name of each is the name of its file."""

    authority: SigningKey
    registry: SigningKey
    operator: SigningKey
    mission_owner: SigningKey

    def __iter__(self) -> Iterator[SigningKey]:
        """All of them."""
        return (getattr(self, each.name) for each in fields(self))


first_principals: Final = {
    "authority": service_principals.authority,
    "registry": service_principals.registry,
    "operator": service_principals.operator,
    "mission_owner": Actor(type=ActorType.HUMAN, id="urn:weavehold:human:mission-owner"),
}
"""Who the first keys belong to."""


@dataclass(frozen=True, kw_only=True)
class Organization:
    """An initialized Organization."""

    organization_id: str
    name: str
    shard_count: int
    incarnation: str
    keys: FirstKeys
    keys_directory: Path
    created: tuple[str, ...] = field(default=())
    """What this run made, in words; empty when everything was there."""
    advice: tuple[str, ...] = field(default=())
    """What is to be done now elsewhere, in words."""


def organization_id(name: str) -> str:
    """The identifier of the Organization `name`. Raises `UnusableChoice`."""
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", name):
        raise UnusableChoice(
            f"the Organization name {name!r} cannot be used. Take 1 to 63 lowercase letters, digits and inner hyphens"
        )
    return organization_prefix + name


async def only_organization(connection: Connection) -> str:
    """The name of the one Organization, `default_name` when there is none. Raises UnusableChoice for several."""
    rows = await (await connection.execute(load(__package__).list_organizations)).fetchall()
    names: list[str] = [name for (name,) in rows] or [default_name]
    if len(names) > 1:
        raise UnusableChoice(f"there are the Organizations {', '.join(names)}. Choose one with --name")
    return names[0]


def key_file(keys_directory: Path, name: str) -> Path:
    """Where the key `name` (a field of `FirstKeys`) lies."""
    return keys_directory / f"{name.replace('_', '-')}.json"


def write_key_file(path: Path, key: SigningKey) -> None:
    """Write a private key with mode 0600, whole or not at all, durable on return. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_durably(path, key.key_file(), mode=0o600)


async def _in_turn[T](folder: Path, act: Callable[[], T]) -> T:
    """Do something with the files of a folder while nobody else does. Raises InitializationFault, OSError."""
    deadline = time.monotonic() + folder_wait_seconds
    while True:
        try:
            return _alone(folder, act)
        except FolderInUse as fault:
            if time.monotonic() > deadline:
                message = f"somebody has been at work in {folder} for {folder_wait_seconds:g} s"
                raise InitializationFault(f"{message}: another init, or a rotation of keys. Wait for it") from fault
        await asyncio.sleep(poll_seconds)


def _alone[T](folder: Path, act: Callable[[], T]) -> T:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with alone_in(folder):
        return act()


def _first_keys(keys_directory: Path, created: list[str]) -> FirstKeys:
    """The keys of the folder; those that are missing are made."""
    return FirstKeys(
        **{
            name: _first_key(key_file(keys_directory, name), principal, created)
            for name, principal in first_principals.items()
        }
    )


def _first_key(path: Path, principal: Actor, created: list[str]) -> SigningKey:
    remove_drafts(path)
    if not path.exists():
        key = SigningKey.generate(principal)
        write_key_file(path, key)
        created.append(f"key file {path}")
        return key
    try:
        key = SigningKey.from_file(path)
    except (OSError, ValueError) as error:
        raise InitializationFault(f"the key file {path} cannot be used: {error}. Restore it or move it away") from error
    if key.principal != principal:
        raise InitializationFault(
            f"the key file {path} belongs to {key.principal.id}, not to {principal.id}. Move it away"
        )
    return key


async def initialize(
    connection: Connection, *, name: str, keys_directory: Path, shard_count: int | None = None
) -> Organization:
    """Create the Organization `name`, or find it; idempotent. `connection` must be in autocommit mode.

    Raises `UnusableChoice`, `InitializationFault` (another shard count, a key registered differently), `psycopg.Error`
    (nothing is in the database then), `OSError` (a key file cannot be written).
    """
    identifier = organization_id(name)
    if shard_count is not None and not 1 <= shard_count <= shard_count_max:
        raise UnusableChoice(f"{shard_count} shards cannot be made. Take 1 to {shard_count_max}")
    created: list[str] = []
    keys = await _in_turn(keys_directory, lambda: _first_keys(keys_directory, created))
    sql = load(__package__)
    async with connection.transaction():
        await connection.execute(sql.lock_initialization)
        shards = await _ensure_organization(connection, identifier, name, shard_count, created)
        was_there = f"Organization {identifier} with {shards} shards" not in created
        [(now,)] = await (await connection.execute(sql.read_clock)).fetchall()
        new = [key for key in keys if await _ensure_key(connection, identifier, key, now, created)]
        row = await (await connection.execute(sql.current_incarnation, {"organization_id": identifier})).fetchone()
        anchor = await _anchor(connection, identifier, keys.authority)
    if row is None:
        raise InitializationFault(f"the Organization {identifier} has no incarnation. Restore the database")
    path = keys_directory / anchors_file_name
    pinned = await _in_turn(keys_directory, lambda: _ensure_anchors(path, anchor, created))
    return Organization(
        organization_id=identifier,
        name=name,
        shard_count=shards,
        incarnation=row[0],
        keys=keys,
        keys_directory=keys_directory,
        created=tuple(created),
        advice=_advice(path, pinned=pinned == anchor) if was_there and keys.authority in new else (),
    )


def _advice(path: Path, *, pinned: bool) -> tuple[str, ...]:
    """What those who read Events need after another key of the authority came into a history that was there."""
    hand_on = f"hand the new {path} to every Projector and Worker and restart them: they do not know this key yet"
    if pinned:
        return (f"the authority has another key: {hand_on}",)
    return (f"{path} still pins the key before: move it away and run `weavehold init` again, then {hand_on}",)


async def _ensure_organization(
    connection: Connection, identifier: str, name: str, shard_count: int | None, created: list[str]
) -> int:
    """The shard count of the Organization, which is made with its shards and first incarnation when missing."""
    sql = load(__package__)
    shards = shard_count or shard_count_default
    facts: dict[str, str | int] = {"organization_id": identifier, "name": name, "shard_count": shards}
    row = await (await connection.execute(sql.find_organization, facts)).fetchone()
    if row is None:
        await connection.execute(sql.insert_organization, facts)
        await connection.execute(sql.insert_shards, facts)
        await connection.execute(sql.reserve_registry_group, facts)
        await connection.execute(
            sql.insert_first_incarnation, facts | {"incarnation": incarnation_name(0, secrets.token_hex(16))}
        )
        created.append(f"Organization {identifier} with {shards} shards")
        return shards
    stored = int(row[2])
    if shard_count not in (None, stored):
        raise InitializationFault(
            f"the Organization {identifier} has {stored} shards, not {shard_count}. Their number is fixed for good"
        )
    return stored


async def _ensure_key(
    connection: Connection, identifier: str, key: SigningKey, now: datetime, created: list[str]
) -> bool:
    """Register the key, valid from a little before now; False when it is registered, which must be the same."""
    sql = load(__package__)
    facts = {
        "organization_id": identifier,
        "key_id": key.key_id,
        "principal_type": key.principal.type.value,
        "principal_id": key.principal.id,
        "public_key": key.public_key,
        "valid_from": format_timestamp(now - timedelta(seconds=key_valid_before_seconds)),
    }
    made = await connection.execute(sql.register_key, facts)
    if made.rowcount == 1:
        created.append(f"registered key {key.key_id} of {key.principal.id}")
        return True
    row = await (await connection.execute(sql.find_key, facts)).fetchone()
    if row is None or (row[0], row[1], bytes(row[2])) != (key.principal.type.value, key.principal.id, key.public_key):
        raise InitializationFault(f"the key {key.key_id} is registered for another Principal or with other bytes")
    return False


async def _anchor(connection: Connection, identifier: str, key: SigningKey) -> RegistryEvidence:
    """The authority's key as it is registered, for whoever must recognise the authority."""
    facts = {"organization_id": identifier, "key_id": key.key_id}
    [(_, _, public_key, valid_from)] = await (await connection.execute(load(__package__).find_key, facts)).fetchall()
    binding = KeyBinding(
        key_id=key.key_id,
        principal=key.principal,
        algorithm=algorithm,
        public_key=base64url_text(bytes(public_key)),
        valid_from=valid_from,
        validity_history=(),
    )
    return RegistryEvidence(organization_id=identifier, bindings=(binding,))


def _ensure_anchors(path: Path, anchor: RegistryEvidence, created: list[str]) -> RegistryEvidence:
    """What is pinned for those who read Events: the authority's key, unless one is already. Done in turn only."""
    remove_drafts(path)
    try:
        pinned = load_anchors(path)
    except FileNotFoundError:
        pinned = TrustAnchors(anchors=())
    except AnchorsFault as fault:
        raise InitializationFault(f"the trust anchors {fault}. Restore the file or move it away") from fault
    found = pinned.of(anchor.organization_id)
    if found is None:
        replace_durably(path, TrustAnchors(anchors=(*pinned.anchors, anchor)).file(), mode=0o644)
        created.append(f"trust anchors of {anchor.organization_id} in {path}")
    return found or anchor
