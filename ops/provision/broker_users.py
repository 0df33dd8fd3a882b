"""The users of an Organization's account at the broker, each with an nkey; kept in the folder that is provisioned.

`users.json` names them with their public halves. A seed that was carried to where it is used and taken away from here
stays in force: only the public half is needed to write the configuration again.
"""

import os
import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
import nkeys
from msgspec import Struct

from contracts.identifiers import token
from ops.command_fault import CommandFault, UsageFault
from ops.durable_file import make_private_directory, private_mode, replace_durably
from ops.provision.broker_permissions import (
    Permissions,
    agent_permissions,
    authority_permissions,
    client_permissions,
    operator_permissions,
    projector_permissions,
    relay_permissions,
)
from services.process.broker import public_nkey
from services.process.settings import SettingsFault

users_file_name: Final = "users.json"


class Part(StrEnum):
    """What a user of the broker is."""

    AUTHORITY = "authority"
    RELAY = "relay"
    PROJECTOR = "projector"
    OPERATOR = "operator"
    CLIENT = "client"
    AGENT = "agent"


class User(Struct, frozen=True, kw_only=True, rename="camel"):
    """One user. `principal` is the Agent's ID or the client's name, empty for the parts that there are once."""

    name: str
    part: Part
    principal: str
    public_nkey: str

    def permissions(self, organization_id: str, shard_count: int) -> Permissions:
        """What the user may do."""
        match self.part:
            case Part.AUTHORITY:
                return authority_permissions(organization_id)
            case Part.RELAY:
                return relay_permissions(organization_id)
            case Part.PROJECTOR:
                return projector_permissions(organization_id, shard_count)
            case Part.OPERATOR:
                return operator_permissions(organization_id)
            case Part.CLIENT:
                return client_permissions(organization_id)
            case Part.AGENT:
                return agent_permissions(organization_id, self.principal)


class Account(Struct, frozen=True, kw_only=True, rename="camel"):
    """The account of one Organization."""

    organization_id: str
    shard_count: int
    users: tuple[User, ...]

    @property
    def name(self) -> str:
        """The account's name at the broker."""
        return f"WH_{token(self.organization_id)}"


def account_directory(directory: Path, organization_id: str) -> Path:
    """Where an Organization's users and seeds lie."""
    return directory / "accounts" / token(organization_id)


def seed_file(directory: Path, organization_id: str, user: User) -> Path:
    """Where the seed of a user lies, or lay."""
    return account_directory(directory, organization_id) / f"{user.name}.nk"


def load_accounts(directory: Path) -> list[Account]:
    """All accounts that were provisioned in `directory`. Raises CommandFault for a damaged file."""
    return [_load(file) for file in sorted(directory.glob(f"accounts/*/{users_file_name}"))]


def _load(file: Path) -> Account:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Account)
    except (OSError, msgspec.MsgspecError) as fault:
        raise CommandFault(f"{file} cannot be used: {fault}; restore it, or move its folder away") from fault


def settle_account(
    directory: Path, organization_id: str, shard_count: int, *, agents: Iterable[str], clients: Iterable[str]
) -> Account:
    """Make the users that are missing; whoever is there keeps its key. Raises CommandFault, UsageFault, OSError."""
    folder = account_directory(directory, organization_id)
    make_private_directory(folder)
    file = folder / users_file_name
    known = {(user.part, user.principal): user for user in _load(file).users} if file.exists() else {}
    wanted = [(part, "") for part in (Part.AUTHORITY, Part.RELAY, Part.PROJECTOR, Part.OPERATOR)]
    wanted += [(Part.CLIENT, _usable_name(name)) for name in clients]
    wanted += [(Part.AGENT, agent_id) for agent_id in agents]
    for part, principal in wanted:
        if (part, principal) not in known:
            known[part, principal] = _new_user(folder, part, principal, {user.name for user in known.values()})
    users = tuple(sorted(known.values(), key=lambda user: (list(Part).index(user.part), user.name)))
    account = Account(organization_id=organization_id, shard_count=shard_count, users=users)
    # Seeds first: a user in the list always has or had its seed.
    replace_durably(file, msgspec.json.format(msgspec.json.encode(account), indent=1) + b"\n", mode=private_mode)
    return account


def _usable_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise UsageFault(f"the client name {name!r} cannot be used: take 1 to 64 letters, digits, hyphens, underscores")
    return name


def _new_user(folder: Path, part: Part, principal: str, taken: set[str]) -> User:
    short = re.sub(r"[^A-Za-z0-9_-]+", "-", principal.rpartition(":")[2])[:64].strip("-")
    name = "-".join(filter(None, (part.value, short)))
    if name in taken:
        name = f"{part.value}-{token(principal)}"
    path = folder / f"{name}.nk"
    if not path.exists():
        replace_durably(
            path, bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)) + b"\n", mode=private_mode
        )
    try:
        return User(name=name, part=part, principal=principal, public_nkey=public_nkey(path))
    except SettingsFault as fault:
        raise CommandFault(f"{path} {fault.problem}; move it away and run the command again") from fault
